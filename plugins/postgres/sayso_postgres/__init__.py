"""The ledger in PostgreSQL; `sayso_postgres.store` imports psycopg."""
