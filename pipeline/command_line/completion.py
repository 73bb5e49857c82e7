"""`strategos completion SHELL`: a script with which a shell completes `strategos`."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strategos.components.errors import ExitCode

FILES, YAML, RUNS, KEYS = "<files>", "<yaml>", "<runs>", "<keys>"
"""Placeholders of arguments with words that the shell finds when it completes."""

_KINDS = {
    "PIPELINE_YAML": YAML,
    "FILE": FILES,
    "DIR": FILES,
    "FOLDER": FILES,
    "DATA": FILES,
    "ROWS": FILES,
    "KEY=VALUE": KEYS,
    "KEY": KEYS,
    **dict.fromkeys(("RUN", "GOOD", "BAD", "MODEL", "RUN|VERSION"), RUNS),
    **dict.fromkeys(("A", "B"), RUNS),
}


@dataclasses.dataclass(frozen=True)
class Command:
    """The words that may follow a command.

    Attributes:
      words: Its subcommands, or the values of its arguments.
      options: The values of each option; None if it takes none.
      help: One line on the command.
    """

    words: Sequence[str]
    options: Mapping[str, Sequence[str] | None]
    help: str


def completion(arguments: argparse.Namespace) -> int:
    """`strategos completion bash|zsh|fish`: prints the script."""
    from strategos.pipeline import command_line
    from strategos.pipeline.config import introspect
    from strategos.pipeline.config.sections import Config

    paths = [key.path for key in introspect.keys(Config)]
    keys = [".".join(path) for path in paths if "NAME" not in path]
    scripts = {"bash": bash, "zsh": zsh, "fish": fish}
    by_name = commands(command_line.parser())
    print(scripts[arguments.shell](by_name, keys), end="")
    return ExitCode.DONE


def commands(parser: argparse.ArgumentParser) -> dict[str, Command]:
    """The commands of a parser by their words, `""` for the parser itself.

    Args:
      parser: The parser, which may have subcommands at any depth.
    """
    return dict(_commands(parser, "", ""))


def _commands(
    parser: argparse.ArgumentParser, name: str, about: str
) -> Iterator[tuple[str, Command]]:
    words: list[str] = []
    options: dict[str, Sequence[str] | None] = {}
    below: list[tuple[str, Command]] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            for word, inner in action.choices.items():
                words.append(word)
                path = f"{name} {word}".strip()
                below += _commands(inner, path, helps.get(word, ""))
        elif action.option_strings:
            takes = None if action.nargs == 0 else _taken(action)
            options |= dict.fromkeys(action.option_strings, takes)
        else:
            words += _taken(action)
    yield name, Command(list(dict.fromkeys(words)), options, about)
    yield from below


def _taken(action: argparse.Action) -> list[str]:
    """The words that an argument may be; none if they are not known."""
    if action.choices:
        return [str(each) for each in action.choices]
    shown = action.metavar if isinstance(action.metavar, str) else ""
    several = re.findall("[A-Z_]+|[a-z]+", shown) if shown.startswith("[") else [shown]
    known = (_KINDS.get(each, each if each.islower() else "") for each in several)
    return list(dict.fromkeys(filter(None, known)))


def bash(by_name: Mapping[str, Command], keys: Sequence[str]) -> str:
    """The script for bash.

    Args:
      by_name: From `commands`.
      keys: The keys of the YAML.
    """
    return _BASH.format(
        commands=" | ".join(f'"{name}"' for name in by_name if name),
        options=_cases(
            (f"{name}:{option}", values)
            for name, command in by_name.items()
            for option, values in command.options.items()
            if values is not None
        ),
        flags=_cases((name, list(each.options)) for name, each in by_name.items()),
        words=_cases((name, each.words) for name, each in by_name.items()),
        keys=" ".join(keys),
    )


def zsh(by_name: Mapping[str, Command], keys: Sequence[str]) -> str:
    """The script for zsh, which reads bash's; arguments as for `bash`."""
    return f"{_ZSH}{bash(by_name, keys)}"


def fish(by_name: Mapping[str, Command], keys: Sequence[str]) -> str:
    """The script for fish; arguments as for `bash`."""
    lines = [_FISH.format(keys=" ".join(keys))]
    for name, command in by_name.items():
        place = f"-n '__strategos_at {name}'"
        for word in command.words:
            about = by_name.get(f"{name} {word}".strip())
            lines.append(_fish_line(place, [word], about.help if about else ""))
        for option, values in command.options.items():
            sign = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            lines.append(_fish_line(f"{place} {sign}", values, "", option=True))
    return "\n".join(lines) + "\n"


def _cases(pairs: Any) -> str:
    """Cases of bash: `"name") words="…" ;;`, equal ones together."""
    names: dict[str, list[str]] = {}
    for name, words in pairs:
        names.setdefault(" ".join(words), []).append(f'"{name}"')
    return "\n".join(
        f'    {" | ".join(some)}) words="{words}" ;;' for words, some in names.items()
    )


def _fish_line(
    place: str, values: Sequence[str] | None, about: str, option: bool = False
) -> str:
    line = f"complete -c strategos {place}"
    if values is None:
        return line
    known = [_FISH_WORDS.get(each, each) for each in values if each != FILES]
    parts = [line, "-r" if option else "", "-F" if FILES in values else "-f"]
    if known:
        parts.append(f"-a '{' '.join(known)}'")
    if about:
        parts.append("-d '{}'".format(about.replace("'", "\\'")))
    return " ".join(filter(None, parts))


_BASH = """\
# Completes `strategos`. Made by `strategos completion`: repeat it after an update.
_strategos_keys="{keys}"

_strategos_runs() {{
  local folder=. word
  for word in "${{COMP_WORDS[@]}}"; do
    case "$word" in */*.yaml | */*.yml) folder="${{word%/*}}" ;; esac
  done
  ls "$folder/runs/.strategos/runs" 2>/dev/null
}}

_strategos() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" before="" command="" words="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "${{command:+$command }}${{COMP_WORDS[i]}}" in
      {commands})
        command="${{command:+$command }}${{COMP_WORDS[i]}}" ;;
    esac
  done
  (( COMP_CWORD > 0 )) && before="${{COMP_WORDS[COMP_CWORD-1]}}"
  if [[ "$before" == "=" ]]; then return; fi  # a value
  case "$command:$before" in
{options}
    *)
      if [[ "$current" == -* ]]; then
        case "$command" in
{flags}
        esac
      else
        case "$command" in
{words}
        esac
      fi ;;
  esac
  COMPREPLY=()
  for i in $words; do
    case "$i" in
      "<files>") COMPREPLY+=($(compgen -f -- "$current")) ;;
      "<yaml>") COMPREPLY+=($(compgen -f -X '!*.y*ml' -- "$current")
        $(compgen -d -S / -- "$current")) ;;
      "<runs>") COMPREPLY+=($(compgen -W "$(_strategos_runs)" -- "$current")) ;;
      "<keys>") COMPREPLY+=($(compgen -W "$_strategos_keys" -- "$current")) ;;
      *) COMPREPLY+=($(compgen -W "$i" -- "$current")) ;;
    esac
  done
}}

complete -o filenames -F _strategos strategos
"""
_ZSH = """\
#compdef strategos
autoload -U +X compinit && compinit -u
autoload -U +X bashcompinit && bashcompinit
"""
_FISH = """\
# Completes `strategos`. Made by `strategos completion`: repeat it after an update.
set -g __strategos_keys {keys}

function __strategos_words
    # The words of the command line that are no options.
    commandline -opc | string match -v -- '-*'
end

function __strategos_at
    # Whether these words follow `strategos`, and no command of theirs does.
    set -l words (__strategos_words)[2..]
    set -l wanted $argv
    test (count $wanted) -eq 0; and test (count $words) -gt 0; and return 1
    test (count $words) -ge (count $wanted); or return 1
    for i in (seq (count $wanted))
        test "$words[$i]" = "$wanted[$i]"; or return 1
    end
end

function __strategos_yaml
    __fish_complete_suffix .yaml
    __fish_complete_suffix .yml
end

function __strategos_runs
    set -l folder .
    for word in (commandline -opc)
        string match -qr '/.*\\.ya?ml$' -- $word; and set folder (path dirname $word)
    end
    for run in $folder/runs/.strategos/runs/*
        path basename $run
    end
end
"""
_FISH_WORDS = {
    YAML: "(__strategos_yaml)",
    RUNS: "(__strategos_runs)",
    KEYS: "$__strategos_keys",
}
