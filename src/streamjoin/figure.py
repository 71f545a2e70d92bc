"""Pictures: one line chart, as a PNG and in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import plotext

COLOURS = ("#0b6e4f", "#c8553d", "#3a5a98", "#b58900", "#6c4a8e", "#2aa198", "#d33682")
_FEW = 4  # lines with room for a legend among them


@dataclass(frozen=True)
class Chart:
    """Lines over a common axis; `lines` maps a label to its (x, y) values."""

    title: str
    x: str
    y: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]

    def png(self, path: Path) -> Path:
        """Draw into a file; returns its path."""
        mpl.use("Agg")  # no window, whatever the machine has
        figure, axes = plt.subplots(figsize=(8, 4.2), dpi=150, layout="constrained")
        for colour, (label, (x, y)) in zip(COLOURS, self.lines.items(), strict=False):
            axes.plot(x, y, label=label, color=colour, linewidth=2.5)
            end: dict[str, Any] = {
                "xytext": (6, 0),
                "textcoords": "offset points",
                "va": "center",
                "color": colour,
            }
            axes.annotate(f"{y[-1]:,.0f}", (x[-1], y[-1]), annotation_clip=False, **end)
        axes.set_title(self.title, loc="left", fontsize=12, fontweight="bold")
        axes.set_xlabel(self.x)
        axes.set_ylabel(self.y)
        highest = max(max(y) for _, y in self.lines.values())
        axes.set_ylim(-0.03 * highest, 1.05 * highest)  # a line at zero is seen above the axis
        axes.margins(x=0)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.xaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
        if len(self.lines) > _FEW:  # beside that many lines there is no room inside
            below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13)}
            axes.legend(frameon=False, ncols=len(self.lines) // 2, **below)
        else:
            axes.legend(frameon=False, loc="best")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
        plt.close(figure)
        return path

    def terminal(self, width: int = 90, height: int = 18) -> str:
        """The same chart as text."""
        figure = plotext.figure
        figure.clear()
        figure.plot_size(width, height)
        for marker, (label, (x, y)) in zip("•x+o*", self.lines.items(), strict=False):
            line = figure.signal(list(x), list(y), marker=marker).lines()
            line.label(label)
            figure.draw(line)
        figure.title(self.title)
        figure.label(self.x, "x")
        figure.label(self.y, "y")
        return str(plotext.uncolorize(str(figure.build())))
