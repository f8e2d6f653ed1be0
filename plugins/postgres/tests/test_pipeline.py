"""Pipelined statements to PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from sayso_postgres.pipeline import Pipeline


@pytest.fixture
def pipeline(postgres_url: str) -> Iterator[Pipeline]:
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        yield Pipeline(raw)


def asked(pipeline: Pipeline, sql: str, *values: object) -> list[tuple[object, ...]]:
    pipeline.send(sql, values)
    return pipeline.answers()[-1]


def test_values_come_back_as_they_were_sent(pipeline: Pipeline) -> None:
    sql = "SELECT ?::text, ?::bigint, ?::float8, ?::int, ?::text"
    for number in (0.1, 1e300, 5e-324, -0.0, 1_732_000_000.123457):
        row = ("a \\ 'b' \n ü", 2**62, number, -1, None)
        assert asked(pipeline, sql, *row) == [row]


def test_statements_answer_in_their_order(pipeline: Pipeline) -> None:
    for number in range(3):
        pipeline.send("SELECT ?::int", (number,))
        pipeline.send("SELECT 'x'")
    assert pipeline.answers() == [[(0,)], [("x",)], [(1,)], [("x",)], [(2,)], [("x",)]]
    assert asked(pipeline, "SELECT ?::int", 3) == [(3,)]


def test_what_is_larger_than_all_buffers_gets_through_both_ways(pipeline: Pipeline) -> None:
    large = "x" * 6_000_000
    for _ in range(3):
        pipeline.send("SELECT ?::text", (large,))
    assert pipeline.answers() == [[(large,)]] * 3


def test_an_error_skips_what_follows_and_spares_what_comes_later(pipeline: Pipeline) -> None:
    pipeline.send("SELECT 1")
    pipeline.send("SELECT 1 / ?::int", (0,))
    pipeline.send("SELECT ?::int + 1", (1,))
    with pytest.raises(psycopg.errors.DivisionByZero):
        pipeline.answers()
    assert asked(pipeline, "SELECT ?::int + 1", 1) == [(2,)]
    assert asked(pipeline, "SELECT 1 / ?::int", 1) == [(1,)]


def test_what_is_forgotten_does_not_run(pipeline: Pipeline) -> None:
    pipeline.send("CREATE TABLE forgotten (id int)")
    pipeline.forget()
    assert asked(pipeline, "SELECT to_regclass('forgotten')::text") == [(None,)]


def test_more_different_statements_run_than_are_prepared(pipeline: Pipeline) -> None:
    for _ in range(2):
        for number in range(150):
            assert asked(pipeline, f"SELECT ?::int + {number}", 1) == [(number + 1,)]
    [(prepared,)] = asked(pipeline, "SELECT count(*) FROM pg_prepared_statements")
    assert prepared == 100


def test_a_terminated_connection_is_closed(pipeline: Pipeline, postgres_url: str) -> None:
    [(pid,)] = asked(pipeline, "SELECT pg_backend_pid()")
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(%s, 60000)", (pid,))
    with pytest.raises(psycopg.OperationalError):
        asked(pipeline, "SELECT 1")
    assert pipeline._raw.closed


def test_what_cannot_be_sent_closes_the_connection(pipeline: Pipeline) -> None:
    class Unreadable:
        def __str__(self) -> str:
            raise OSError("no text")

    pipeline.send("SELECT 1")
    pipeline.send("SELECT ?::text", (Unreadable(),))
    with pytest.raises(OSError, match="no text"):
        pipeline.answers()
    assert pipeline._raw.closed
