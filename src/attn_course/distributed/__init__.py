"""Several processes that compute together, and what the processes of chapter 20 do."""
