"""A deterministic simulation of the local runtime, from one integer seed to one verdict.

    script.py    what a simulated run is: declarations, settings, operations, all plain data
    generate.py  a script from a seed, or conforming streams for the properties (and source.py)
    naive.py     the rules again, in plain Python, sharing nothing with the operator (and elements.py)
    play.py      a script carried out by the library
    checks.py    what must hold after each operation and at the end
    shrink.py    a failing script made small
    bugs.py      bugs planted in the library by tests, to see that they are found

By hand: `python -m tests.simulation --seed 123 --count 10000`.
"""
