"""A conversation as the model reads it: messages and rows of the ledger made into its turns."""
