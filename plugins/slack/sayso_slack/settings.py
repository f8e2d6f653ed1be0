"""`[plugin.slack]`."""

# Without `from __future__ import annotations`, whose texts pydantic compiles at each start.

from typing import Literal

from pydantic import Field, SecretStr

from sayso import Duration, Plugin


class SlackSettings(Plugin.Settings):
    """`[plugin.slack]`: the app, its workspaces, and what it does there."""

    bot_token: SecretStr | None = None
    """The bot token of the app ("xoxb-..."), or "env:NAME"."""
    app_token: SecretStr | None = None
    """The app-level token ("xapp-..."), or "env:NAME": with it the service connects to Slack
    (Socket Mode), and needs no public address."""
    signing_secret: SecretStr | None = None
    """The signing secret of the app, or "env:NAME": with it Slack posts to /slack/events and
    /slack/interactions."""
    teams: list[str] = []
    """The ids of the workspaces ("T...") whose members may do anything here."""
    channel: str | None = None
    """The id of the channel ("C...") that gets a card for each call that waits; absent: only the
    threads of conversations get cards."""
    inputs: list[str] = []
    """The fields of inputs that cards show, or "*" for all. Only a card with the whole input has
    the button Approve."""
    tools: list[str] = ["*"]
    """The tools whose calls are shown in `channel`."""
    reminders: bool = True
    """Whether cards are followed by a reminder at a third and two thirds of their time."""
    after: Duration | None = Field(default=None, gt=0)
    """For an escalation: `channel` hears only of calls that are still pending after this time."""
    talk: bool = True
    """Whether people can talk with the agent in threads and direct messages."""
    listen: list[str] = []
    """The ids of channels in which every message is offered to the channel router, without a
    mention; needs the plugin "router"."""
    history: int = Field(default=100, ge=1, le=1000)
    """The most messages of a thread that the agent reads."""
    api: str = "https://slack.com/api/"
    """The address of Slack's Web API."""
    formatting: Literal["plain", "markdown"] = "plain"
    """Whether the agent's text is shown as it is, or Slack reads its *bold* and `code`."""

    @property
    def lacking(self) -> list[str]:
        """The keys that the app cannot do without, and that are not set."""
        lacking = [] if self.bot_token else ["bot_token"]
        lacking += [] if self.teams else ["teams"]
        reached = self.app_token or self.signing_secret
        return lacking if reached else [*lacking, "app_token or signing_secret"]
