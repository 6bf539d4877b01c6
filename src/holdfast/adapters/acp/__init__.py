"""`holdfast record -- AGENT`: a recorder between a client and an agent that speak the Agent Client
Protocol over standard input and output.

    pump        the bytes: two pipes, each line passed on unchanged once it is stored
    recorder    one line at a time: what it means, what is stored, what is done when that fails
    recording   what has happened on the wire so far, and what of it is to be stored; pure
    known       what of a replayed session the store has already; pure
    replayed_calls    a call and its output, which a replay may tell in two updates; pure
    storage     what is to be stored, done with sessions, turns and streams
    wire        a line, and the lines that the recorder itself sends
    steps       what `recording` asks of `storage`
    replay      a stored session as the updates of a `session/load`
"""
