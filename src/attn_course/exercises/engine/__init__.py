"""Check an answer against right and wrong ones. Used from chapter 0 on."""
