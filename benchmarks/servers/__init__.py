"""The servers under load, each a program: `python SCRIPT.py PORT [AGENT] [OPTION]...`."""
