"""How requests come in and replies leave: the listener, the application, HTTP and WebSocket."""
