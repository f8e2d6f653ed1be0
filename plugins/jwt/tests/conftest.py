"""Nothing to prepare: the tests bring an identity provider of their own."""
