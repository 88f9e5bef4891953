"""Readings of JVMs as they were recorded, of those that ran out of memory and of those that only nearly did."""

from __future__ import annotations

import pytest

from headrace.spark.pulse import Pulse

# Seconds, milliseconds spent on collecting, how full the room for old objects was, what the last collection won back,
# the last two in percent. A heap of 512 MB on two cores, by a query that gathers as many rows as named.
ENOUGH = {
    "11 million hashes": "0.15/0/87/2 0.5/218/18/84 1.03/379/18/25 1.44/535/24/21 1.99/687/31/17 2.52/940/41/15 "
    "3.13/1216/49/13 3.59/1433/55/6 4.17/1663/63/8 4.95/1985/74/10 5.77/2403/81/9 6.54/2692/89/5 8.91/4670/56/51 "
    "9.2/4784/89/7 9.62/5150/47/59 9.89/5349/70/0 10.96/6349/76/34 11.25/6530/87/7 12.99/8160/99/2 13.73/8886/90/20",
    "12 million hashes": "0.17/0/90/20 0.45/188/21/80 1.03/412/21/22 1.83/722/28/19 2.42/934/35/14 2.8/1072/45/14 "
    "3.2/1264/53/2 3.9/1488/63/13 4.65/1680/73/10 5.17/1864/81/9 5.5/2052/89/7 9.93/5961/97/12 10.84/6827/69/37 "
    "11.11/6838/76/-7 11.42/7030/32/75 11.75/7267/63/-2 12.71/8152/76/34 13.0/8380/88/7 13.76/9068/99/6 "
    "14.41/9666/96/20",
    "24 million sorted": "12.54/103/65/16 20.14/128/73/1 20.67/137/79/13 21.2/146/90/14 21.73/263/52/52 "
    "21.99/267/70/15 26.48/317/72/25 27.01/353/93/2",
}
TOO_LITTLE = {
    "500 million rows": (
        "0.38/371/13/60 1.39/371/13/60 2.41/583/13/20 3.43/1162/40/10 5.0/2633/73/13 5.3/2900/73/4 5.5/2960/73/4 "
        "6.41/3886/92/15 7.74/5145/99/7 8.4/5780/99/2 8.95/6328/99/1 9.8/7030/99/0 10.49/7747/99/0",
        8.4,
    ),
    "500 million rows on a busy machine": (
        "0.08/570/13/66 0.67/636/13/65 1.87/636/13/65 2.16/740/24/42 2.5/950/44/18 2.82/1231/56/8 3.09/1401/66/10 "
        "4.66/2874/73/13 6.02/3997/99/12 7.82/5548/99/5 8.62/6230/99/2 9.33/6910/99/1 9.88/7442/99/0",
        8.62,
    ),
    "13 million hashes": (
        "0.16/0/96/20 0.41/151/20/81 0.95/305/27/19 1.48/541/44/14 2.16/849/62/8 2.5/1011/72/10 2.85/1191/80/9 "
        "3.13/1304/87/8 4.69/2733/99/16 5.57/3441/95/6 6.96/4824/96/1",
        6.96,
    ),
    "14 million hashes": (
        "0.22/0/13/68 0.49/32/13/61 0.79/147/27/35 1.07/270/43/26 1.43/450/59/8 1.7/594/69/10 2.9/1711/73/12 "
        "3.16/1815/81/5 3.42/1922/85/8 3.69/2047/93/3 4.63/2975/96/11 5.59/3807/97/4 7.92/5974/99/1 10.71/8534/99/0",
        7.92,
    ),
}


def ended_at(recorded: str, looks: int = 1) -> float | None:
    """When the JVM would have been ended."""
    pulse = Pulse(3.0)
    for reading in recorded.split():
        at, spent, full, won = reading.split("/")
        for _ in range(looks):
            if pulse.suffocates(f"!ys{spent} {full} {won}\n".encode(), float(at)):
                return float(at)
    return None


@pytest.mark.parametrize("looks", [1, 3])
@pytest.mark.parametrize("name", ENOUGH)
def test_one_that_has_just_enough_is_left_alone(name: str, looks: int) -> None:
    """Also while a single collection takes more than a second and finds next to nothing."""
    assert ended_at(ENOUGH[name], looks) is None


@pytest.mark.parametrize("looks", [1, 3])
@pytest.mark.parametrize("name", TOO_LITTLE)
def test_one_that_has_too_little_is_ended_once_that_is_certain(name: str, looks: int) -> None:
    recorded, at = TOO_LITTLE[name]
    assert ended_at(recorded, looks) == at


def test_one_that_is_full_and_does_its_work_is_left_alone() -> None:
    """What little there is to collect is collected in no time."""
    assert ended_at(" ".join(f"{number / 4}/{number * 20}/99/1" for number in range(100))) is None


def test_one_that_collects_all_the_time_and_finds_room_is_left_alone() -> None:
    assert ended_at(" ".join(f"{number / 4}/{number * 245}/95/30" for number in range(100))) is None


def test_one_that_has_only_begun_to_suffocate_is_given_time() -> None:
    assert ended_at(" ".join(f"{number / 4}/{number * 245}/99/0" for number in range(100))) == 3.0


def test_an_answer_of_another_kind_says_nothing() -> None:
    pulse = Pulse(0.0)
    assert not any(pulse.suffocates(answer, at) for at, answer in enumerate([b"!x\n", b"", b"!ys1 2\n", b"!yv\n"]))
