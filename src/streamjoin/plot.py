"""Pictures: lines as a PNG and in the terminal, several side by side or one above the other, and bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from streamjoin.errors import InvalidJoin

try:
    import matplotlib as mpl
    import matplotlib.pyplot as plt
    import plotext
except ModuleNotFoundError as error:
    raise InvalidJoin(
        f'Pictures need matplotlib and plotext ({error}); pip install "streamjoin[plot]", or for the demos '
        '"streamjoin[demo]"'
    ) from error

COLOURS = ("#0b6e4f", "#c8553d", "#3a5a98", "#b58900", "#6c4a8e", "#2aa198", "#d33682")
_FEW = 4  # lines with room for a legend among them


class Picture(Protocol):
    """Anything that can be drawn into a file."""

    def png(self, path: Path) -> Path: ...


class TerminalPicture(Picture, Protocol):
    """A picture that can be shown in the terminal too."""

    def terminal(self) -> str: ...


@dataclass(frozen=True)
class Chart:
    """Lines over a common axis; `lines` maps a label to its (x, y) values; `log`: both axes by tenfolds."""

    title: str
    x: str
    y: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    log: bool = field(default=False, kw_only=True)

    def png(self, path: Path) -> Path:
        """Draw into a file; returns its path."""
        figure, (axes,) = _axes(8, 4.2)
        self.draw(axes)
        for line in axes.lines:
            x, y = line.get_data()
            end: dict[str, Any] = {
                "xytext": (6, 0),
                "textcoords": "offset points",
                "va": "center",
                "color": line.get_color(),
            }
            axes.annotate(_number(y[-1]), (x[-1], y[-1]), annotation_clip=False, **end)
        if len(self.lines) > _FEW:  # beside that many lines there is no room inside
            below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13)}
            axes.legend(frameon=False, ncols=len(self.lines) // 2, **below)
        else:
            axes.legend(frameon=False, loc="best")
        return _save(figure, path)

    def draw(self, axes: Any) -> None:
        """The lines, without a legend."""
        for colour, (label, (x, y)) in zip(COLOURS, self.lines.items(), strict=False):
            axes.plot(x, y, label=label, color=colour, linewidth=2.5, marker="o" if self.log else None)
        self._dress(axes, max(max(y) for _, y in self.lines.values()))

    def _dress(self, axes: Any, highest: float) -> None:
        axes.set_title(self.title, loc="left", fontsize=12, fontweight="bold")
        axes.set_xlabel(self.x)
        axes.set_ylabel(self.y)
        if self.log:
            axes.loglog()
            axes.set_ylim(top=2 * highest)
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 2, 5)))
                axis.set_minor_formatter(mpl.ticker.NullFormatter())
        else:
            axes.set_ylim(-0.03 * highest, 1.05 * highest)  # a line at zero is seen above the axis
            axes.margins(x=0)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: _number(value)))
        axes.xaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: _number(value)))

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


@dataclass(frozen=True)
class Areas(Chart):
    """The lines stacked on one another as areas, below a limit."""

    limit: float

    def draw(self, axes: Any) -> None:
        """The areas and the limit, without a legend."""
        x = next(iter(self.lines.values()))[0]
        heights = [y for _, y in self.lines.values()]
        axes.stackplot(x, heights, labels=list(self.lines), colors=COLOURS, alpha=0.85, linewidth=0)
        axes.axhline(self.limit, color="black", linestyle="--", linewidth=1, label="limit")
        self._dress(axes, max(self.limit, *map(sum, zip(*heights, strict=True))))


@dataclass(frozen=True)
class Column:
    """Charts one above the other over a common x axis, each with its legend; `mark`: what happened, where."""

    charts: Sequence[Chart]
    mark: tuple[float, str]

    def terminal(self) -> str:
        """The first chart as text."""
        return self.charts[0].terminal()

    def png(self, path: Path) -> Path:
        """Draw into a file; returns its path."""
        figure, axes = _axes(9, 2.4 * len(self.charts), rows=len(self.charts))
        where, what = self.mark
        beside: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)}
        for chart, one in zip(self.charts, axes, strict=True):
            chart.draw(one)
            one.axvline(where, color="grey", linestyle=":", linewidth=1.5)
            if len(chart.lines) > 1:
                one.legend(frameon=False, reverse=isinstance(chart, Areas), **beside)
            one.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=True))
            one.label_outer()
        left: dict[str, Any] = {
            "xytext": (-5, 5),
            "textcoords": "offset points",
            "ha": "right",
            "color": "grey",
        }
        axes[0].annotate(what, (where, axes[0].get_ylim()[0]), **left)
        return _save(figure, path)


@dataclass(frozen=True)
class Panels:
    """Charts of the same lines side by side, with one legend."""

    charts: Sequence[Chart]

    def png(self, path: Path) -> Path:
        """Draw into a file; returns its path."""
        figure, axes = _axes(4 * len(self.charts), 4.2, columns=len(self.charts))
        for chart, one in zip(self.charts, axes, strict=True):
            chart.draw(one)
            one.label_outer()
        lines, labels = axes[0].get_legend_handles_labels()
        figure.legend(
            lines,
            labels,
            frameon=False,
            ncols=min(len(labels), 2 * len(self.charts)),
            loc="outside lower center",
        )
        return _save(figure, path)


@dataclass(frozen=True)
class Bars:
    """Groups of bars: `bars` maps a label to its value in each group; a line stands at 1."""

    title: str
    y: str
    groups: Sequence[str]
    bars: Mapping[str, Sequence[float]]

    def png(self, path: Path) -> Path:
        """Draw into a file; returns its path."""
        figure, (axes,) = _axes(10, 4.2)
        width = 0.8 / len(self.bars)
        for i, (colour, (label, values)) in enumerate(zip(COLOURS, self.bars.items(), strict=False)):
            places = [group + (i + 0.5) * width - 0.4 for group in range(len(self.groups))]
            axes.bar(places, values, width * 0.9, label=label, color=colour)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xticks(range(len(self.groups)), self.groups)
        axes.set_title(self.title, loc="left", fontsize=12, fontweight="bold")
        axes.set_ylabel(self.y)
        axes.grid(alpha=0.25, axis="y")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(frameon=False, ncols=len(self.bars), loc="outside lower center")
        return _save(figure, path)


def _number(value: float) -> str:
    """A place on an axis.

    >>> [_number(v) for v in (0.25, 3.0, 12.34, 1_234.5, 0.30000000000000004)]
    ['0.25', '3', '12.3', '1,234', '0.3']
    """
    return f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.3g}"


def _axes(width: float, height: float, columns: int = 1, rows: int = 1) -> tuple[Any, list[Any]]:
    """A figure, and what to draw on, side by side or one above the other."""
    mpl.use("Agg")  # no window, whatever the machine has
    shape: dict[str, Any] = {"figsize": (width, height), "dpi": 150, "layout": "constrained"}
    figure, axes = plt.subplots(rows, columns, sharex="col", sharey="row", squeeze=False, **shape)
    return figure, list(axes.flat)


def _save(figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)
    return path
