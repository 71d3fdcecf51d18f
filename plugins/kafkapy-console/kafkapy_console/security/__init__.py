"""Security of the console: logins, sessions, roles, headers of responses, tokens of forms, the audit log."""
