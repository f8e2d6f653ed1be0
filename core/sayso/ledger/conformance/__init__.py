"""The requirements for every store, as checks that any test suite can run.

    import asyncio, pytest
    from sayso.ledger.conformance import CHECKS

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_store_conforms(check, make_empty_database):
        asyncio.run(check(lambda: MyStore(make_empty_database)))

A check gets a factory of stores over one storage, empty when the check begins. Each call of the
factory returns a store that is not opened; a store that is not `shared` is made once only.
"""

from __future__ import annotations

from sayso.ledger.conformance import contents, leases, logs, purges, transactions
from sayso.ledger.conformance.samples import Check

CHECKS: tuple[Check, ...] = (
    *contents.CHECKS,
    *transactions.CHECKS,
    *leases.CHECKS,
    *purges.CHECKS,
    *logs.CHECKS,
)
