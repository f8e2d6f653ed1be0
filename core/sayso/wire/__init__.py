"""The contract's messages and events: reading, writing and masking them."""
