"""A curve over time as SVG, for a page without scripts. With scripts `chart.js` draws it so that it zooms."""

from collections.abc import Callable, Sequence

from markupsafe import Markup

from api.console.drawing.page import fragment, moment

WIDTH, HEIGHT = 560, 120
_LEFT, _TOP, _BOTTOM = 4, 18, 16
_CLOCK = slice(11, 19)
"""The part of a moment that is the time of a day."""


def curve(points: Sequence[tuple[int, float]], label: str, shown: Callable[[float], str]) -> Markup:
    """A curve of `points` (milliseconds since 1970, value), in order. `shown` writes a value.

    The axis of values begins at 0. Without two points there is nothing to draw.
    """
    if len(points) < 2:
        return Markup('<p class="faint">Nothing to draw yet: a sample is taken every few seconds.</p>')
    most = max(value for _, value in points)
    first, last = points[0][0], points[-1][0]
    width, height = WIDTH - 2 * _LEFT, HEIGHT - _TOP - _BOTTOM

    def place(at: int, value: float) -> str:
        x = _LEFT + width * (at - first) / max(1, last - first)
        y = _TOP + height * (1 - value / most if most else 1)
        return f"{x:.1f},{y:.1f}"

    values = {
        "label": label,
        "line": " ".join(place(*point) for point in thinned(points, width)),
        "newest": shown(points[-1][1]),
        "most": shown(most),
        "first": moment(first)[_CLOCK],
        "last": moment(last)[_CLOCK],
        "left": _LEFT,
        "right": _LEFT + width,
        "base": _TOP + height,
        "width": WIDTH,
        "height": HEIGHT,
    }
    return fragment("curve.svg", values)


def thinned(points: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """At most `most` of the points: of neighbours the highest, so that no peak is lost."""
    each = -(-len(points) // most)
    parts = (points[index : index + each] for index in range(0, len(points), each))
    return [max(part, key=lambda point: point[1]) for part in parts]
