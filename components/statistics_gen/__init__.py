"""StatisticsGen: TFDV's statistics without Beam."""
