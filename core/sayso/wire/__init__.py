"""What travels: the messages and events of the contract, how they are read, written, masked."""
