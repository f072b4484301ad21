"""How much agrees, counted under a heading each, and the first differences in words."""

from collections import Counter
from dataclasses import dataclass, field

FEASIBLE = "feasible sets equal"
SCORES = "scores equal (±1)"
EXACT = "scores equal exactly"
CHOICE = "choice among the highest totals"
REASONS = "reasons of unschedulable pods equal in meaning"
NOMINATED = "preemption: node at least as good"
VICTIMS = "preemption: same victims on the recorded node"
REFUSED = "preemption: refused for the same reasons"
PLACED = "preemption: placed without any"

# In percent; what is not named has to agree wholly.
AT_LEAST = {SCORES: 99.5, EXACT: 0.0}


@dataclass
class Agreement:
    """Counts of what was compared and of what is the same."""

    compared: Counter[str] = field(default_factory=Counter)
    same: Counter[str] = field(default_factory=Counter)
    by_plugin: dict[str, Counter[str]] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)

    def note(self, heading: str, is_same: bool, difference: str = "") -> None:
        """Count one comparison."""
        self.compared[heading] += 1
        self.same[heading] += is_same
        if not is_same:
            self.differences.append(difference)

    def note_score(self, plugin: str, difference: float, where: str) -> None:
        """Count one plugin's score of one node."""
        counts = self.by_plugin.setdefault(plugin, Counter())
        for heading, is_same in ((EXACT, difference == 0), (SCORES, abs(difference) <= 1)):
            counts[f"{heading} of"] += 1
            counts[heading] += is_same
            self.compared[heading] += 1
            self.same[heading] += is_same
        if difference:
            self.differences.append(f"{where}: {plugin} is {difference:+g} off")

    def percent(self, heading: str) -> float:
        """How much of what was compared is the same."""
        return 100.0 * self.same[heading] / self.compared[heading]

    def failures(self) -> list[str]:
        """The headings, and plugins, that agree less than they must."""
        fallen = [h for h in self.compared if self.percent(h) < AT_LEAST.get(h, 100.0)]
        return fallen + [
            f"{SCORES} of {plugin}"
            for plugin, counts in self.by_plugin.items()
            if _share(counts, SCORES) < AT_LEAST[SCORES]
        ]

    def table(self) -> str:
        """The figures for a person."""
        rows = [("", "compared", "same", "percent", "needed")]
        for heading, count in self.compared.items():
            needed = AT_LEAST.get(heading, 100.0)
            shown = f"{needed:.1f}" if needed else "-"
            figures = (str(self.same[heading]), f"{self.percent(heading):.2f}", shown)
            rows.append((heading, str(count), *figures))
        rows += [("", "", "", "", "")] if self.by_plugin else []
        if self.by_plugin:
            rows.append(("scores of", "compared", "exact", "percent", "±1"))
        for plugin, counts in sorted(self.by_plugin.items()):
            percents = [f"{_share(counts, heading):.2f}" for heading in (EXACT, SCORES)]
            total, exact = str(counts[f"{EXACT} of"]), str(counts[EXACT])
            rows.append((f"  {plugin}", total, exact, percents[0], percents[1]))
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        return "\n".join(
            (
                row[0].ljust(widths[0])
                + "".join("  " + c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))
            ).rstrip()
            for row in rows
        )


def _share(counts: Counter[str], heading: str) -> float:
    return 100.0 * counts[heading] / counts[f"{heading} of"]
