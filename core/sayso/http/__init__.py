"""Requests and replies over HTTP and WebSocket: the application and its endpoints."""
