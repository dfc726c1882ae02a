"""What users are told: log, stats, record, summary, report."""
