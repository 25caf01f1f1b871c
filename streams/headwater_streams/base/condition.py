"""A check's condition as text, read by sqlglot's tokenizer of Spark's SQL: which aggregates it has, and where they end.

A job, a job in SQL and a suite over a table all ask here, so that one condition is the same to each. sqlglot is
imported when it is first needed: checks are declared in modules that every command imports.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot.tokens import Token

AGGREGATES = frozenset(
    """
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
    approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg
    bool_and bool_or collect_list collect_set corr count count_if count_min_sketch covar_pop covar_samp every
    first first_value grouping grouping_id histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint
    kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float
    kurtosis last last_value listagg max max_by mean measure median min min_by mode percentile percentile_approx
    percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx
    regr_sxy regr_syy schema_of_variant_agg skewness some std stddev stddev_pop stddev_samp string_agg sum
    theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum tuple_intersection_agg_double
    tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer tuple_union_agg_double
    tuple_union_agg_integer var_pop var_samp variance vector_avg vector_sum
    """.split()  # noqa: SIM905 - one a line would be a page
)
"""Spark's own aggregate functions, which a test compares with those that Spark lists."""

# `x LIKE ANY (...)` and `SOME` are no aggregates, nor is a method of something else.
_NO_CALL_BEHIND = frozenset({"LIKE", "ILIKE", "."})
_OPTIONS = (("WITHIN", "GROUP"), ("FILTER",), ("IGNORE", "NULLS"), ("RESPECT", "NULLS"))


def enclosed(expression: str) -> str:
    """The expression in brackets; a comment at its end does not swallow the closing one.

    Example:
        >>> enclosed("x > 0 -- at last")
        '(x > 0 -- at last \\n)'
    """
    # The blank: after a backslash Spark would take the line break into the comment.
    return f"({expression} \n)" if "--" in expression else f"({expression})"


def has_aggregate(expression: str) -> bool:
    """Whether a condition is about all rows of a batch together; false where it is not SQL, as Spark will say."""
    return bool(aggregates_in(expression))


def aggregates_in(expression: str) -> list[str]:
    """The outermost aggregate calls of a condition, so that a result can show their values.

    Example:
        >>> aggregates_in("avg(delay) < 600 AND count(*) FILTER (WHERE gate = ')') = 0")
        ['avg(delay)', "count(*) FILTER (WHERE gate = ')')"]
    """
    tokens, words = _read(expression)
    calls: list[str] = []
    position = 0
    while position < len(tokens):
        end = _call_end(words, position)
        if end is None:
            position += 1
            continue
        calls.append(expression[tokens[position].start : tokens[end - 1].end + 1])
        position = end
    return list(dict.fromkeys(calls))


def _read(expression: str) -> tuple[Sequence["Token"], Sequence[str]]:
    """The tokens and what each says in capitals; nothing for texts and quoted names."""
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import TokenError
    from sqlglot.tokens import TokenType

    try:
        tokens: list[Token] = Dialect.get_or_raise("spark").tokenize(expression)
    except TokenError:
        return (), ()
    quoted = (TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.IDENTIFIER)
    return tokens, ["" if token.token_type in quoted else token.text.upper() for token in tokens]


def _call_end(words: Sequence[str], position: int) -> int | None:
    """The position behind an aggregate call with all that belongs to it; None where none begins, or it has no end."""
    is_name = words[position].lower() in AGGREGATES
    if not is_name or (position and words[position - 1] in _NO_CALL_BEHIND):
        return None
    end = _closed(words, position + 1)
    while end is not None:
        option = next((each for each in _OPTIONS if tuple(words[end : end + len(each)]) == each), None)
        if option is None:
            break
        end += len(option)
        end = end if option[-1] == "NULLS" else _closed(words, end)
    is_over_rows = end is not None and words[end : end + 1] == ["OVER"]
    return None if is_over_rows else end


def _closed(words: Sequence[str], position: int) -> int | None:
    """The position behind the bracket that closes the one here; None where there is none, or nothing closes it."""
    if words[position : position + 1] != ["("]:
        return None
    depth = 0
    for place in range(position, len(words)):
        depth += {"(": 1, ")": -1}.get(words[place], 0)
        if not depth:
            return place + 1
    return None
