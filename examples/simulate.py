#!/usr/bin/env python3
"""Planets around a sun, step by step, with a table that grows as they go.

A simulation of the kind that runs for days: its only progress is in memory, and its result is a CSV file it
appends to. Run it under twinpage, and a kill costs milliseconds of it instead of all:

    twinpage run --state /tmp/planets -- python3 examples/simulate.py --years 5000
    twinpage resume /tmp/planets

Usage: simulate.py [--years N] [--out FILE]
"""

import argparse
import math

# Name, distance from the sun (astronomical units), mass (of the sun).
PLANETS = [
    ("venus", 0.723, 2.448e-6),
    ("earth", 1.000, 3.003e-6),
    ("mars", 1.524, 3.227e-7),
    ("jupiter", 5.203, 9.543e-4),
    ("saturn", 9.537, 2.857e-4),
]
GRAVITY = 4 * math.pi**2  # in astronomical units, years and masses of the sun
STEPS_PER_YEAR = 2000


class Body:
    """A point with a mass."""

    def __init__(self, name, distance, mass):
        self.name, self.mass = name, mass
        speed = math.sqrt(GRAVITY / distance) if distance else 0.0
        angle = 2.4 * len(name)
        self.x, self.y = distance * math.cos(angle), distance * math.sin(angle)
        self.vx, self.vy = -speed * math.sin(angle), speed * math.cos(angle)


def pull(bodies, step):
    """Change all speeds by what the bodies do to each other in `step` years."""
    for i, a in enumerate(bodies):
        for b in bodies[i + 1 :]:
            dx, dy = b.x - a.x, b.y - a.y
            force = GRAVITY * step / math.hypot(dx, dy) ** 3
            a.vx += dx * force * b.mass
            a.vy += dy * force * b.mass
            b.vx -= dx * force * a.mass
            b.vy -= dy * force * a.mass


def drift(bodies, step):
    """Move all bodies for `step` years."""
    for body in bodies:
        body.x += body.vx * step
        body.y += body.vy * step


def energy(bodies):
    """What must stay nearly the same."""
    moving = sum(b.mass * (b.vx**2 + b.vy**2) / 2 for b in bodies)
    bound = sum(
        GRAVITY * a.mass * b.mass / math.hypot(a.x - b.x, a.y - b.y)
        for i, a in enumerate(bodies)
        for b in bodies[i + 1 :]
    )
    return moving - bound


def main():
    """Simulate and report."""
    parser = argparse.ArgumentParser(description="Planets around a sun.")
    parser.add_argument("--years", type=int, default=300, help="how long to simulate (300)")
    parser.add_argument("--out", default="planets.csv", help="where the table goes (planets.csv)")
    options = parser.parse_args()
    bodies = [Body("sun", 0.0, 1.0), *(Body(*planet) for planet in PLANETS)]
    # The whole stands still.
    bodies[0].vx = -sum(b.mass * b.vx for b in bodies[1:])
    bodies[0].vy = -sum(b.mass * b.vy for b in bodies[1:])
    start, step = energy(bodies), 1 / STEPS_PER_YEAR
    with open(options.out, "w", encoding="ascii") as out:
        out.write("year,body,x,y\n")
        for year in range(1, options.years + 1):
            for _ in range(STEPS_PER_YEAR):
                drift(bodies, step / 2)
                pull(bodies, step)
                drift(bodies, step / 2)
            for body in bodies:
                out.write(f"{year},{body.name},{body.x:.9f},{body.y:.9f}\n")
            out.flush()
            off = abs(energy(bodies) / start - 1)
            if off > 1e-3:
                raise SystemExit(f"simulate: the energy is off by {off:.1e} in year {year}")
            print(f"year {year:>4}: earth at {bodies[2].x:+.6f} {bodies[2].y:+.6f}, energy off by {off:.1e}", flush=True)
    print(f"{options.years} years are in {options.out}")


if __name__ == "__main__":
    main()
