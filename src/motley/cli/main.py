"""`motley`: one command per file, loaded only when called, so that `--help` stays quick."""

import importlib

import click

from motley import __version__

# name -> (module with a click command called `command`, what it is for)
COMMANDS = {
    "up": ("up", "Start a cluster on this machine and wait until it is ready."),
    "down": ("down", "Stop the cluster; its data stays."),
    "token": ("token", "Make the tokens by which other machines join."),
    "join": ("join", "Make this machine a node of a cluster that runs elsewhere."),
    "leave": ("leave", "Stop being a node of a cluster that runs elsewhere."),
    "status": ("status", "Show the cluster's components."),
    "logs": ("logs", "Show a component's log."),
    "doctor": ("doctor", "Check the machine and the cluster, say how to put things right."),
    "units": ("units", "Let systemd start the cluster's components."),
    "demo": ("demo", "Deploy the hello example and call it through its Service."),
    "dashboard": ("dashboard", "See the cluster in a browser, served from here or by a pod."),
    "kubeconfig": ("kubeconfig", "Print the administrator's kubeconfig or its path."),
    "apply": ("apply", "Apply manifests, also in Minik8s' spelling."),
    "explain": ("explain", "Say why a pod is on its node, or on none."),
    "image": ("image", "Make images from Debian packages, and manage this machine's."),
    "images": ("images", "Say, and see, which architectures images are built for."),
    "func": ("func", "Write, deploy and call functions."),
    "workflow": ("workflow", "Run workflows, and see a run step by step."),
    "top": ("top", "Show what nodes and pods use, also in cores of one common speed."),
    "rebalance": ("rebalance", "Show which pods should leave hot nodes, and move them."),
    "certs": ("certs", "List and renew certificates, change the authority."),
    "backup": ("backup", "Save every object to a file, while the cluster runs."),
    "restore": ("restore", "Bring the objects of a backup back."),
    "apiserver": ("apiserver", "Run the API server in the foreground."),
    "controllers": ("controllers", "Run the controllers in the foreground."),
    "scheduler": ("scheduler", "Run the scheduler against any Kubernetes cluster."),
    "node": ("node", "Run the node agent in the foreground."),
    "proxy": ("proxy", "Run the service proxy and cluster DNS in the foreground."),
    "slurm": ("slurm", "Run jobs on Slurm clusters: submit, logs, results, and the bridge."),
    "gateway": ("gateway", "Serve Routes and Ingresses by nginx, in the foreground."),
    "functions": ("functions", "Run functions: their router and controller, in the foreground."),
    "history-server": (
        "history_server",
        "Keep and serve what was used, beside any Kubernetes.",
    ),
    "overcommit-webhook": (
        "overcommit_webhook",
        "Let other clusters' kubelets take what nodes' labels allow beyond their size.",
    ),
    "prometheus-rules": (
        "prometheus_rules",
        "Write the rules by which a Prometheus records what nodes use.",
    ),
    "fake-runtime": ("fake_runtime", "Simulate a container runtime, for tests of node agents."),
    "fake-nodes": ("fake_nodes", "Register nodes that run bound pods at once, for load tests."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order a newcomer meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command's module."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"motley.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="motley")
def main() -> None:
    """Motley: a Kubernetes-compatible orchestrator for clusters of unlike machines.

    Start with `motley up`, then `motley demo`; `kubectl` works unchanged with the file that
    `motley kubeconfig --path` names.
    """


if __name__ == "__main__":
    main()
