"""The section `data.csv`: how CSV files are written."""

from __future__ import annotations

import codecs
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from strategos.components.data_files.sources.reading import CsvFormat
from strategos.pipeline.config.problems import reject
from strategos.pipeline.config.types import Section, Spellings

_WORDS = {"tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}


class Csv(Section):
    """How CSV files are written; files of other formats ignore it."""

    delimiter: str = Field(
        ",", description='Character between fields, such as `";"` or `"\\t"`.'
    )
    quote: str = Field(
        '"',
        description="Character around fields with delimiters or line breaks, which is "
        'written twice within them; `""`: no character has this meaning.',
    )
    decimal: Literal[".", ","] = Field(
        ".",
        description="Decimal mark of numbers. With `,`, a field such as `1.234` is no "
        "number, because it may be 1234.",
    )
    encoding: str = Field(
        "utf-8",
        description="Encoding of the text, such as `windows-1252` or `utf-16`.",
    )
    nulls: Spellings = Field(
        (),
        description="Spellings of a missing value in every column, those of text "
        "included, such as `\\N` of MySQL. An empty field is always missing.",
    )

    @field_validator("delimiter")
    @classmethod
    def _separates(cls, delimiter: str) -> str:
        delimiter = _WORDS.get(delimiter, delimiter)
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '\r\n\0" ':
            raise reject(
                "a delimiter is one ASCII character, and no quote, space or line break",
                received=repr(delimiter),
                remedy='Write, for example, `delimiter: ";"` or `delimiter: "\\t"`.',
            )
        return delimiter

    @field_validator("quote")
    @classmethod
    def _quotes(cls, quote: str, info: ValidationInfo) -> str:
        if len(quote) > 1 or not quote.isascii() or (quote and quote in "\r\n\0 "):
            raise reject(
                "a quote is one ASCII character, or empty",
                received=repr(quote),
                remedy='Write `quote: "\'"`, or `quote: ""` for none.',
            )
        if quote and quote == info.data.get("delimiter"):
            raise reject("the quote is the delimiter", received=repr(quote))
        return quote

    @field_validator("encoding")
    @classmethod
    def _is_known(cls, encoding: str) -> str:
        try:
            known = codecs.lookup(encoding)
            "a".encode(encoding)
        except LookupError as error:
            raise reject(
                "Python knows no text encoding of this name",
                received=encoding,
                remedy="Names are in the documentation of Python's module `codecs`: "
                "`utf-8`, `windows-1252`, `iso-8859-15`, `utf-16`, `shift_jis`.",
            ) from error
        return "utf-8" if known.name in ("utf-8", "utf-8-sig") else encoding

    def form(self) -> CsvFormat:
        """The settings as readers take them."""
        return CsvFormat(**{**self.model_dump(), "nulls": tuple(self.nulls)})
