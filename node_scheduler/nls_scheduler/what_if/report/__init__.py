"""The report: the same figures as a table, as JSON and as one page of HTML that needs no network."""
