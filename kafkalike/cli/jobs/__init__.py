"""Parts that the jobs for spark-submit share: options, reports, exit codes."""
