"""Survival curves, and the sample of live tuples that finds them out."""

import json

import numpy as np
import pytest

from streamjoin.join.statistics.lifetimes import FOLLOWED, Life, Lives

FOR_EVER = float("inf")


def curve(*points):
    ages, shares = zip(*points, strict=True)
    return Life(np.array(ages, float), np.array(shares, float))


def hashes(first, count):
    return np.arange(first, first + count, dtype=np.int64)


def followed(lives_in_steps, steps, rows=40, stay=FOR_EVER, stored=1.0):
    """Each step brings `rows` keys of one tuple, evicted after so many steps (a function of the key)."""
    found = Lives()
    for step in range(steps):
        keys = hashes(step * rows, rows)
        found.came(keys, keys % 100 < 100 * stored)
        past = hashes(0, (step + 1) * rows)
        found.evicted(past, past // rows + lives_in_steps(past) == step)
        found.tick(float(10 * step), stay)
    return found, 10.0 * (steps - 1)


@pytest.mark.parametrize(
    ("life", "stay", "held"),
    [
        (Life.endless(), 7.0, 7.0),
        (curve((0, 1), (10, 0)), FOR_EVER, 5.0),
        (curve((0, 1), (10, 0)), 4.0, 4 - 4 * 4 / 20),
        (curve((0, 0.5), (10, 0.5)), 30.0, 15.0),  # after the last age the share stays
        (curve((0, 0)), FOR_EVER, 0.0),
        (Life.of_sample(np.array([-1.0, 0.0, 4.0, 4.0])), FOR_EVER, 2.0),
        (Life.of_sample(np.array([2.0, FOR_EVER])), 10.0, 6.0),
        (Life.of_sample(np.array([])), 10.0, 0.0),
    ],
)
def test_tuples_held_for_each_tuple_a_second(life, stay, held):
    assert life.stored(stay) == pytest.approx(held)


def test_lives_of_one_length():
    lives, clock = followed(lambda keys: np.full(len(keys), 4), steps=60)
    assert lives.life(clock).stored(FOR_EVER) == pytest.approx(40, rel=0.06)


def test_lives_of_many_lengths():
    lives, clock = followed(lambda keys: keys % 9, steps=200)
    assert lives.life(clock).stored(FOR_EVER) == pytest.approx(40, rel=0.08)
    assert lives.life(clock).stored(20.0) == pytest.approx(10 * (8 + 7) / 9, rel=0.12)


def test_what_was_dropped_on_arrival_was_never_held():
    lives, clock = followed(lambda keys: np.full(len(keys), 4), steps=60, stored=0.25)
    assert lives.life(clock).stored(FOR_EVER) == pytest.approx(10, rel=0.12)


def test_the_living_count_for_the_ages_they_have_reached():
    """Half of the keys are never evicted; nobody waits for the end to know."""
    lives, clock = followed(lambda keys: np.where(keys % 2, 10_000, 3), steps=80)
    life = lives.life(clock)
    assert life.lasting == pytest.approx(0.5, rel=0.1)
    assert life.stored(500.0) == pytest.approx(0.5 * 30 + 0.5 * 500, rel=0.1)


def test_nothing_is_lasting_as_long_as_nothing_went():
    lives, clock = followed(lambda keys: np.full(len(keys), 10_000), steps=20)
    assert lives.life(clock).lasting == 0.0
    assert lives.life(clock).stored(1000.0) == pytest.approx(1000)


def test_rows_past_their_window_are_followed_no_longer():
    lives, clock = followed(lambda keys: np.full(len(keys), 10_000), steps=50, stay=55.0)
    assert max(clock - lives.born) <= 55.0
    assert lives.life(clock).stored(55.0) == pytest.approx(55)


def test_few_rows_are_followed_however_many_come():
    lives = Lives()
    for step in range(200):
        lives.came(hashes(step * 10_000, 10_000), np.ones(10_000, np.bool_))
        lives.tick(float(step), FOR_EVER)
        assert len(lives.hash) <= FOLLOWED
    assert lives.life(199.0).stored(100.0) == pytest.approx(100)


def test_rows_that_come_one_by_one_are_followed_alike():
    together, apart = Lives(), Lives()
    for step in range(20):
        keys = hashes(step * 100, 100)
        together.came(keys, np.ones(100, np.bool_))
        for i in range(100):
            apart.came(keys[i : i + 1], np.ones(1, np.bool_))
        for lives in (together, apart):
            lives.evicted(keys, keys % 7 == 0)
            lives.tick(float(step), FOR_EVER)
    held = [lives.life(19.0).stored(10.0) for lives in (together, apart)]
    assert held == pytest.approx([60 / 7, 60 / 7], rel=0.1)


def test_fading_forgets_the_past_but_changes_no_ratio():
    lives, clock = followed(lambda keys: keys % 9, steps=100)
    before = lives.life(clock).stored(FOR_EVER)
    lives.fade()
    assert lives.life(clock).stored(FOR_EVER) == pytest.approx(before)
    for _ in range(20):
        lives.fade()
    for step in range(100):  # a new time: everything goes at once
        keys = hashes(10_000 + 40 * step, 40)
        lives.came(keys, np.zeros(40, np.bool_))
        lives.tick(clock + 10.0 * step, FOR_EVER)
    assert lives.life(clock + 1000).stored(100.0) < 0.01


def test_a_restored_table_goes_on():
    half, _ = followed(lambda keys: keys % 9, steps=40)
    restored = Lives.from_json(json.loads(json.dumps(half.to_json())))
    assert restored.to_json() == half.to_json()
    for lives in (half, restored):
        lives.came(hashes(7, 500), np.ones(500, np.bool_))
        lives.evicted(hashes(7, 90))
        lives.tick(900.0, FOR_EVER)
    assert restored.to_json() == half.to_json()
    assert restored.life(900.0).to_json() == half.life(900.0).to_json()
