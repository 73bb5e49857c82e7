"""Constants of the features, shared by `preprocessing.py` and `model.py`."""

from __future__ import annotations

# The domains of schemas/flights.pbtxt: an index into them needs no pass over the data.
CARRIERS = (
    *("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL"),
    *("HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"),
)
ORIGINS = ("EWR", "JFK", "LGA")

# Usual values, which replace weather that a station did not report.
USUAL_WEATHER = {
    "temp": 56.0,  # °F
    "dewp": 41.0,  # °F
    "humid": 60.0,  # %
    "wind_speed": 10.0,  # mph
    "wind_gust": 0.0,  # mph; missing means no gust
    "precip": 0.0,  # inches
    "pressure": 1018.0,  # hPa
    "visib": 10.0,  # miles, the largest value reported
}

DISTANCE_BUCKETS = 10
CROSS_BUCKETS = 256
HOURS = 24
DAYS = 366
