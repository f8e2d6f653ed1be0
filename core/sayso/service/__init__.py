"""The processes of a service: supervisor and workers, their signals, ports and log."""
