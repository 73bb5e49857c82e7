"""StatisticsGen: TFDV's statistics from columns, file by file."""
