"""Draws one plot as SVG: curves by server, over counts that are spaced evenly or to scale."""

from html import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 40, 50
COLOURS = ("#7f7f7f", "#1f77b4", "#d62728", "#2ca02c", "#9467bd")
# Pixels that the names at the curves' ends keep between each other.
NAME_HEIGHT = 14


def step_of(top):
    """The distance of grid lines: a round number that makes four to ten of them."""
    step = 1
    while top / step > 10:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return step


def text(x, y, words, anchor="middle", more=""):
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def apart(heights):
    """The same heights, moved down where they would overlap; in the order that they came in."""
    moved, last = {}, -NAME_HEIGHT
    for index in sorted(range(len(heights)), key=heights.__getitem__):
        last = moved[index] = max(heights[index], last + NAME_HEIGHT)
    return [moved[index] for index in range(len(heights))]


def draw(title, across, curves, to_scale):
    """`curves`: for each server its values by count. The lines of an SVG."""
    counts = sorted({count for curve in curves.values() for count in curve})
    highest = max(value for curve in curves.values() for value in curve.values())
    step = step_of(highest)
    top = step * (int(highest / step) + 1)
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(count):
        part = count / counts[-1] if to_scale else (counts.index(count) + 0.5) / len(counts)
        return LEFT + wide * part

    def y(value):
        return TOP + high * (1 - value / top)

    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12" fill="#333">'
    )
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
    yield text(LEFT, 22, title, "start")
    for value in range(0, top + 1, step):
        yield f'<path d="M{LEFT} {y(value):.1f}h{wide}" stroke="#ddd"/>'
        yield text(LEFT - 8, y(value) + 4, f"{value:,}", "end")
    for count in counts:
        yield text(x(count), HEIGHT - BOTTOM + 18, f"{count:,}")
    yield text(LEFT + wide / 2, HEIGHT - 12, across)
    ends = apart([y(curve[max(curve)]) + 4 for curve in curves.values()])
    for colour, (server, curve), end in zip(COLOURS, curves.items(), ends):
        points = [(x(count), y(value)) for count, value in sorted(curve.items())]
        line = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for px, py in points:
            yield f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>'
        yield text(points[-1][0] + 10, end, server, "start", f' fill="{colour}"')
    yield "</svg>"
