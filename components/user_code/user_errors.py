"""Explains an error in the user's code: file and line, and the message alone.

AutoGraph and Keras wrap an error in their own tracebacks and remarks, once per layer of
the call. The innermost message is the helpful one.
"""

from __future__ import annotations

import re
import sys
import traceback
from pathlib import Path
from typing import Any

from strategos.components.errors import first_line
from strategos.components.wording import did_you_mean

_QUOTED_FRAME = re.compile(r'^\s*File "(.+)", line (\d+), in .*\n.*\n', re.MULTILINE)
_LAYER_REMARK = re.compile(r"Exception encountered when calling [^\n]*\n+")
_GRAPH_REMARK = re.compile(
    r"^(?:Graph execution error:|Detected at node |<stack traces|\s*File \").*$",
    re.MULTILINE,
)
_SEVERAL_REMARK = re.compile(r"\d+ root error\(s\) found\.\s*\(0\) [A-Z_]+: *")
_FUNCTION_REMARK = re.compile(r"\{\{function_node [^}]*\}\} ?")
_NOT_FINITE = re.compile(r'Detected Infinity or NaN in output \d+ of [\w-]+ op "(\w+)"')
_CHECKED_NODE = re.compile(r"Detected at node (\S+)/\w+/CheckNumerics")
_FOUND = re.compile(r"Tensor had ([^\n]+) values")
_OPERATION_REMARK = re.compile(r" \[Op:\w+\](?: name: ?\S*)?\s*$")
_EAGER_REMARK = re.compile(r" You can attempt the following resolutions[\s\S]*")
_SCOPE_REMARK = re.compile(r"\. Please ensure you are using a `keras\.utils[\s\S]*")
_UNKNOWN = re.compile(
    r"(?:Unknown|Could not interpret) (optimizer|loss|activation|initializer|metric|"
    r"regularizer)(?: function)?(?: identifier)?:? '?([\w.]+)"
)
_ARGUMENTS_REMARK = re.compile(r"\n\s*Call arguments received by [\s\S]*")


def explain(error: BaseException, folder: str) -> str:
    """`FILE:LINE: Type: message` of an error.

    The line is the innermost one in the user's code; without one the text starts with
    the error's type.

    Args:
      error: The exception.
      folder: Folder of the user's code.
    """
    where = location(error, folder)
    if text := _not_finite(str(error)):
        return f"{where}: {text}" if where else text
    text = str(error).rsplit("in user code:", 1)[-1]
    text = _QUOTED_FRAME.sub("", text)
    text = _EAGER_REMARK.sub("", _LAYER_REMARK.sub("", text))
    text = _ARGUMENTS_REMARK.sub("", text).strip()
    if text.startswith("Graph execution error:"):
        text = operation_error(text)
    text = _OPERATION_REMARK.sub("", _FUNCTION_REMARK.sub("", text))
    kind = type(error).__name__
    if not text.startswith(f"{kind}: "):
        text = f"{kind}: {text}" if text else kind
    text = _SCOPE_REMARK.sub(".", text)
    text = "\n".join(line.strip() for line in text.splitlines())
    text += _meant(error, text)
    return f"{where}: {text}" if where else text


def is_not_finite(error: BaseException) -> bool:
    """Whether `tf.debugging.enable_check_numerics` raised the error.

    Args:
      error: The error of an operation.
    """
    return _NOT_FINITE.search(str(error)) is not None


def _not_finite(message: str) -> str:
    """The finding of `tf.debugging.enable_check_numerics`; "" for another message."""
    operation = _NOT_FINITE.search(message)
    if operation is None:
        return ""
    node, match = _CHECKED_NODE.search(message), _FOUND.search(message)
    of = f" in `{node.group(1)}`" if node else ""
    values = match.group(1) if match else "NaN or infinite"
    return f"the operation {operation.group(1)}{of} gives {values} values"


def _meant(error: BaseException, text: str) -> str:
    """A question for the nearest of the names that exist; "" if none is near.

    Args:
      error: An unknown attribute, or an unknown name of something of Keras'.
      text: The message of the error.
    """
    if isinstance(error, AttributeError):
        # Some libraries raise one without the name or the object.
        name, owner = getattr(error, "name", None), getattr(error, "obj", None)
    else:
        name, owner = _unknown_to_keras(text)
    if not name or owner is None:
        return ""
    question = did_you_mean(name, (each for each in dir(owner) if each[0] != "_"))
    return f"{'' if text.endswith('.') else '.'} {question}" if question else ""


def _unknown_to_keras(text: str) -> tuple[str, Any]:
    """The name that Keras does not know, and the module that has such names.

    Returns:
      "" and None if the message is another one.
    """
    match = _UNKNOWN.search(text)
    if match is None:
        return "", None
    kind, name = match.groups()
    kind = f"{kind}es" if kind == "loss" else f"{kind}s"
    # tf-keras writes names in quotes; Keras 3 does not.
    keras = "tf_keras" if f"'{name}'" in text else "keras"
    return name, sys.modules.get(f"{keras}.{kind}")


def operation_error(message: str) -> str:
    """The error of a graph's operation, without its place in TensorFlow's graph.

    Of several errors, such as those of two replicas, the first one.

    Args:
      message: Message of a `tf.errors.OpError`.
    """
    reason = _FUNCTION_REMARK.sub("", message.partition("[[{{node")[0])
    reason = _SEVERAL_REMARK.sub("", _GRAPH_REMARK.sub("", reason)).strip()
    return first_line(reason or message)


def location(error: BaseException, folder: str) -> str | None:
    """`FILE:LINE` of the innermost frame in the user's code, if any.

    Args:
      error: The exception.
      folder: Folder of the user's code.
    """
    frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    frames += _QUOTED_FRAME.findall(str(error))  # AutoGraph's frames are only quoted
    own = [frame for frame in frames if is_own(frame[0], folder)]
    return f"{own[-1][0]}:{own[-1][1]}" if own else None


def is_own(filename: str, folder: str) -> bool:
    """Whether a file is of the user's code.

    Args:
      filename: The file.
      folder: Folder of the user's code.
    """
    path = Path(filename).resolve()
    if not path.is_relative_to(Path(folder).resolve()):
        return False
    return not {".venv", "site-packages"} & set(path.parts)
