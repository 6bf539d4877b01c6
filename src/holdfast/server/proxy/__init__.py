"""The recording proxy: between a client of a provider's API and the provider, byte for byte; what passes
is stored first. See docs/proxy.md.

    dialects  naming  marks  kinds        what a request is, whose session it means, what it is to it: pure
    answers                               what an answer says, as chunks of a format: pure
    lists/                                lists as the store has them
    proxied_sessions  recording  exchange  relay  upstream     what is stored and passed on, in this order
"""
