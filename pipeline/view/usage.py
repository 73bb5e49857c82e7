"""The parser of a command's words: any order, and remedies for unknown words."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from strategos.components.wording import nearest
from strategos.pipeline.config import MAIN_FILE


class Parser(argparse.ArgumentParser):
    """Takes optional words also after options: `rollback FILE --set KEY=VALUE 5`.

    Before Python 3.12.7, argparse decides that an optional word is missing as soon as
    it meets an option. Words of which none names a YAML have no pipeline among them if
    another word may follow: `rollback 5` and `predict rows.csv` use ./pipeline.yaml.
    """

    _intermixed = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses words and options in any order."""
        words = self._get_positional_actions()
        if self._intermixed or not any(each.nargs in ("?", "*") for each in words):
            return super().parse_known_args(args, namespace)
        self._intermixed = True  # the next method calls this one
        try:
            parsed, rest = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._intermixed = False
        first, *more = (each.dest for each in words)
        others = getattr(parsed, more[0]) if first == "pipeline" and more else ()
        positionals = [parsed.pipeline, *(others or ())] if _may_follow(others) else []
        if positionals and not any(
            word.endswith((".yaml", ".yml")) for word in positionals
        ):
            return self.parse_known_args([MAIN_FILE, *(args or ())], namespace)
        return parsed, rest

    def error(self, message: str) -> NoReturn:
        """Ends the process with exit code 2; suggests a meaning of an unknown word."""
        super().error(f"{message}.{_remedy(message)}")


def _may_follow(words: Any) -> bool:
    """Whether another word may follow, given the value of the second argument."""
    return words is None or isinstance(words, list)


def _remedy(message: str) -> str:
    """A sentence that follows a message of argparse; "" if nothing is known."""
    unknown = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
    if unknown:
        near = nearest(unknown[1], re.findall(r"[\w-]+", unknown[2]))
        return f" Did you mean `{near}`?" if near else ""
    if message.endswith("required: COMMAND"):
        return " `strategos --help` lists the commands."
    option = re.search(r"unrecognized arguments: .*?--([\w-]+)", message)
    if option is None:
        several = message.startswith("unrecognized") and ".yaml" in message
        return " A command takes one pipeline: name one YAML." if several else ""
    setting = _setting(option[1].replace("-", "_"))
    hint = f" A setting is given by `--set {setting}=VALUE`;" if setting else ""
    return f"{hint} `strategos COMMAND --help` lists the options of a command."


def _setting(name: str) -> str:
    """The key of a setting by its last part: `trainer.epochs` for `epochs`; or ""."""
    from strategos.pipeline.config import introspect
    from strategos.pipeline.config.sections import Config

    keys = (key.path for key in introspect.keys(Config) if "NAME" not in key.path)
    return next((".".join(path) for path in keys if path[-1] == name), "")
