"""What users are told: log, stats, audit trail, summary, report."""
