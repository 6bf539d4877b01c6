"""The session endpoints that OpenViking's clients use, served from a Holdfast store.

A commit is one entry of the log, a label on the last message that it archives: archived and live
are told apart by one number, so they can't disagree, and no crash leaves a message in both or in
neither. An archive's messages stay in the context until its extraction is done; then a compaction
puts the overview in their place. Everything that is answered is computed from the log.
"""
