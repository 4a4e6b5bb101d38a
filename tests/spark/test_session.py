"""What a Spark session leaves as it was."""

from __future__ import annotations

import signal

from pyspark.sql import SparkSession


def test_ctrl_c_stays_with_who_handled_it(spark: SparkSession) -> None:
    assert spark.sparkContext is not None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
