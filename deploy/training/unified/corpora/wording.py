"""Words identifiers and canonical values; the engine's table source does the same."""

import re


def words(identifier: str) -> str:
    """Returns `number_of_seats` and `NumberOfSeats` as words."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", identifier.replace("_", " "))
    return re.sub(r"\s+", " ", spaced).strip().lower()


_MONTHS = (
    "January February March April May June July August September October November December".split()
)


def surface(value: str) -> str:
    """Returns a canonical value as people write it: 19:55 is `7:55 pm`, 2019-03-02 `March 2nd`, True `yes`."""
    if value in ("True", "False"):
        return "yes" if value == "True" else "no"
    if time := re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)(?::00)?", value):
        hour, minute = int(time[1]), time[2]
        half = "am" if hour < 12 else "pm"
        return f"{(hour - 1) % 12 + 1}:{minute} {half}"
    if date := re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])-([0-3]\d)", value):
        day = int(date[2])
        ending = "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
        return f"{_MONTHS[int(date[1]) - 1]} {day}{ending}"
    if number := re.fullmatch(r"(\d+)\.(\d*?)0+", value):
        return number[1] + (f".{number[2]}" if number[2] else "")
    return value
