"""The profile `minik8s-scheduler`, for a scheduler that is told to be compatible with Minik8s."""

import msgspec

from motley.scheduler import profiles
from motley.scheduler.profiles import DEFAULT_SCHEDULER, Configuration

NAME = "minik8s-scheduler"
# The same as examples/minik8s/scheduler-config.yaml. Anti-affinity is the plugin's own matter here,
# and nobody else scores: it is always the next node's turn.
CONFIGURATION = f"""\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
profiles:
- schedulerName: {NAME}
  plugins:
    multiPoint:
      enabled:
      - name: Minik8s
      disabled:
      - name: InterPodAffinity
    score:
      enabled:
      - name: Minik8s
      disabled:
      - name: "*"
"""


def add(configuration: Configuration) -> None:
    """Serve the profile, too; without other profiles, beside the default one."""
    if any(profile.scheduler_name == NAME for profile in configuration.profiles):
        return
    ours = profiles.parse(CONFIGURATION).profiles
    if not configuration.profiles:
        default = {"schedulerName": DEFAULT_SCHEDULER}
        configuration.profiles.append(msgspec.convert(default, type(ours[0])))
    configuration.profiles.extend(ours)
