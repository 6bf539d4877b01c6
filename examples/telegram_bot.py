"""A bot in the shape of aiogram: updates with ids, several chats at once, answers that are streamed
into the chat; kill it anywhere and start it again.

    python examples/telegram_bot.py [--store bot.db] [--delay 0.0]     a scripted Telegram, no network
    BOT_TOKEN=… python examples/telegram_bot.py                        aiogram (pip install aiogram)

    update ──on_message──► inbox ──one task a chat──► turn ──edit_message_text──► chat
                                                       └── what nobody has seen: outbox ──send_message──► chat

An update is confirmed to Telegram by asking for the next one, so `on_message` must have stored it
by then: updates are handled one after the other (`handle_as_tasks=False`), and the answering is done
by tasks of the gateway's own. `restart` comes first, always: the program has no other recovery code.
Telegram has no idempotency keys: a message that was sent, and whose receipt a kill has swallowed, is
sent again.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import holdfast
from holdfast.errors import AlreadyAccepted, Overtaken

UPDATES = [(1, 42, "Where is order 17?"), (2, 7, "Hello!"), (3, 42, "And order 23?")]
UPDATES += [(4, 7, "/new"), (5, 7, "Do you know me?"), (6, 42, "Thank you.")]
EDIT_EVERY = 2
"""So many pieces are shown at once: Telegram limits how often a message is edited."""


class Gateway:
    """What stands between the bot and the store. `bot` is aiogram's, or one of its shape."""

    def __init__(self, store: holdfast.AsyncStore, bot: Any, delay: float = 0.0) -> None:
        self.store, self.bot, self.delay = store, bot, delay
        self.news: set[str] = set()
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.sending = asyncio.Lock()

    async def on_message(self, message: Any, event_update: Any) -> None:
        """The handler. When it returns, the update is stored; the same one again is known."""
        chat, update = message.chat.id, event_update.update_id
        if message.text == "/new":
            with contextlib.suppress(AlreadyAccepted):
                await self.begin_anew(f"command:{chat}", update)
        else:
            await self.store.accept(f"chat:{chat}", message.text, event_id=update, reply_to=chat)
            print(f"accepted {update}", flush=True)
        self.wake(f"chat:{chat}")

    async def begin_anew(
        self, key: str, update: int | None = None, take: list[str] | None = None
    ) -> None:
        """A command is a turn in a session of its own: killed before its end, it waits to be done
        again, and a second delivery of it is known.
        """
        chat = chat_of(key)
        command = None if update is None else "/new"
        named = {"event_id": update, "reply_to": chat, "take": take}
        async with self.store.turn(key, command, **named) as turn:
            await self.store.reset(f"chat:{chat}")
            await turn.say("A new conversation.")

    def wake(self, key: str) -> None:
        """Has what waits for this chat answered, by a task of its own: no chat waits for another."""
        self.news.add(key)
        if key not in self.tasks:
            self.tasks[key] = asyncio.create_task(self.work(key))

    async def work(self, key: str) -> None:
        try:
            while key in self.news:
                self.news.discard(key)
                await self.answer_waiting(key)
        finally:
            del self.tasks[key]

    async def answer_waiting(self, key: str) -> None:
        while await (await self.store.session(key)).pending():
            # A reset has ended the turn: what still waits is in the new session.
            with contextlib.suppress(Overtaken):
                await self.answer(key)
        await self.send_owed()

    async def answer(self, key: str, cut_off: "CutOff | None" = None) -> None:
        """One turn: takes what waits, or goes on with an answer that was cut off, and shows the
        answer as it is spoken. If all of it was shown, that is confirmed; else it is owed.
        """
        going_on = {} if cut_off is None else {"reply_to": cut_off.reply_to, "take": []}
        async with self.store.turn(key, **going_on) as turn:
            live = LiveMessage(self.bot, chat_of(key))
            if cut_off is not None:
                await live.begin(cut_off.said)
            stream = model(await turn.context("openai.chat"), self.delay)
            # With the real client:
            #   stream = await client.chat.completions.create(
            #       model="gpt-5", messages=await turn.context("openai.chat"), stream=True)
            # and format="openai.chat" for deliver.
            async for text in turn.deliver(stream):
                await live.grow(text)  # durable already
            if await live.is_shown():
                await turn.sent(str(live.message_id))

    async def send_owed(self) -> None:
        # Telegram has one poller, so nobody else sends. Senders in several processes use claims
        # (gateway.py).
        async with self.sending:
            for owed in await self.store.outbox():
                try:
                    sent = await self.bot.send_message(chat_id=int(owed.reply_to), text=owed.text)
                    await owed.sent(str(sent.message_id))
                except Exception as error:
                    # Stays owed: it is sent with the next answer, or after the next start.
                    await owed.failed(str(error))

    async def restart(self) -> None:
        """What a process before this one has left: answers that were cut off are gone on with,
        what waits is answered, what is owed is sent.
        """
        running = await self.store.sessions(state="running")
        listed = list(running)
        while running.next is not None:
            running = await self.store.sessions(state="running", after=running.next)
            listed += running
        # One after the other: a session that was looked at is no longer listed as running, and a
        # kill must not lose those that come later.
        for each in listed:
            await self.go_on(await self.store.get(each.id))
        while page := await self.store.pending():
            for key in dict.fromkeys(str(waiting.key) for waiting in page):
                await (self.begin_anew(key) if is_command(key) else self.answer_waiting(key))
        await self.send_owed()

    async def go_on(self, session: holdfast.AsyncSession) -> None:
        """Goes on with the answer that was cut off here, if there is one. That turn takes nothing:
        what waits has an answer of its own, later.
        """
        key, cut_off = str(session.key), await self.cut_off(session)
        if cut_off is not None and is_command(key):
            await self.begin_anew(key, take=[])
        elif cut_off is not None:
            await self.answer(key, cut_off)

    async def cut_off(self, session: holdfast.AsyncSession) -> "CutOff | None":
        """The answer of the turn that had begun to speak here when its process was killed."""
        spoken: dict[str | None, str] = {}
        async for message in session.transcript():
            if message.role == "assistant":
                spoken[message.turn] = spoken.get(message.turn, "") + message.text
        for turn in reversed(await session.turns()):
            # One that had not said anything has given its message back, which waits; if it went
            # on with another one, that is still to be gone on with.
            if turn.id in spoken or turn.end != "abandoned":
                if turn.end != "abandoned" or turn.reply_to is None:
                    return None
                return CutOff(turn.reply_to, spoken[turn.id])
        return None


class CutOff(NamedTuple):
    """An answer that a kill has cut off: whom it is for, and what of it is durable."""

    reply_to: str
    said: str


class LiveMessage:
    """A message in a chat that grows. Once it could not be shown it is left as it is: the answer is
    durable, and is sent as a whole.
    """

    def __init__(self, bot: Any, chat: int) -> None:
        self.bot, self.chat, self.message_id = bot, chat, None
        self.text, self.shown, self.pieces, self.failed = "", "", 0, False

    async def begin(self, said: str) -> None:
        """With what is durable of a cut-off answer: not all of it may have been shown, and the
        model, which knows it, says only what follows.
        """
        self.text = said
        await self.show()

    async def grow(self, text: str) -> None:
        self.text, self.pieces = self.text + text, self.pieces + 1
        if self.pieces % EDIT_EVERY == 0:
            await self.show()

    async def is_shown(self) -> bool:
        """Shows the rest; whether all of it stands in the chat."""
        if self.text != self.shown:
            await self.show()
        return bool(self.text) and not self.failed

    async def show(self) -> None:
        if self.failed:
            return
        try:
            if self.message_id is None:
                sent = await self.bot.send_message(chat_id=self.chat, text=self.text)
                self.message_id = sent.message_id
            else:
                place = {"chat_id": self.chat, "message_id": self.message_id}
                await self.bot.edit_message_text(text=self.text, **place)
            self.shown = self.text
        except Exception as error:
            print(f"not shown: {error}", flush=True)
            self.failed = True


def chat_of(key: str) -> int:
    return int(key.partition(":")[2])


def is_command(key: str) -> bool:
    return key.startswith("command:")


async def main() -> None:
    arguments = argparse.ArgumentParser(description="A bot with aiogram, or a scripted Telegram.")
    arguments.add_argument("--store", default="bot.db", help="the store's file, or postgresql://…")
    arguments.add_argument("--delay", type=float, default=0.0, help="seconds between two words")
    given = arguments.parse_args()
    token = os.environ.get("BOT_TOKEN")
    async with holdfast.open_async(given.store) as store:
        if token:
            await with_aiogram(store, token, given.delay)
        else:
            telegram = ScriptedTelegram(Path(f"{given.store}.telegram.json"))
            gateway = Gateway(store, telegram, given.delay)
            await gateway.restart()
            await telegram.poll(gateway.on_message)
            await asyncio.gather(*gateway.tasks.values())


async def with_aiogram(store: holdfast.AsyncStore, token: str, delay: float) -> None:
    """BOT_API is the address of a Bot API server of your own."""
    from aiogram import Bot, Dispatcher
    from aiogram.client.session.aiohttp import AiohttpSession
    from aiogram.client.telegram import PRODUCTION, TelegramAPIServer

    own = os.environ.get("BOT_API")
    server = TelegramAPIServer.from_base(own) if own else PRODUCTION
    bot, dispatcher = Bot(token, session=AiohttpSession(api=server)), Dispatcher()
    gateway = Gateway(store, bot, delay)
    dispatcher.message.register(gateway.on_message)
    await gateway.restart()
    await dispatcher.start_polling(bot, handle_as_tasks=False, close_bot_session=False)
    # It was told to stop: what it has begun to answer is answered.
    await asyncio.gather(*gateway.tasks.values())
    await bot.session.close()


# The scripted Telegram, and the scripted model
# --------------------------------------------------------------------------------------------------


class ScriptedTelegram:
    """Keeps what it was sent in a file, and gives updates again until they are confirmed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        known = json.loads(path.read_text()) if path.exists() else {"offset": 0, "chats": []}
        self.offset, self.chats = known["offset"], known["chats"]

    async def poll(self, handler: Callable[[Any, Any], Awaitable[None]]) -> None:
        for update, chat, text in UPDATES:
            if update > self.offset:
                message = SimpleNamespace(chat=SimpleNamespace(id=chat), text=text)
                await handler(message, SimpleNamespace(update_id=update))
                if update % 2 == 0:  # asked for the next ones: the last two are confirmed
                    self.offset = update
                    self._keep()

    async def send_message(self, chat_id: int, text: str) -> Any:
        self.chats.append([chat_id, text])
        self._keep()
        print(f"to {chat_id}: {text}", flush=True)
        return SimpleNamespace(message_id=len(self.chats))

    async def edit_message_text(self, text: str, chat_id: int, message_id: int) -> None:
        self.chats[message_id - 1] = [chat_id, text]
        self._keep()
        print(f"to {chat_id}: {text}", flush=True)

    def _keep(self) -> None:
        written = self.path.with_suffix(".new")
        written.write_text(json.dumps({"offset": self.offset, "chats": self.chats}))
        written.replace(self.path)


async def model(messages: list[dict[str, Any]], delay: float) -> AsyncIterator[str]:
    """What a model would stream: a sentence for each order that it was asked for and has not told
    of, as far as it sees.
    """
    said = {"user": "", "assistant": ""}
    for message in messages:
        said[message["role"]] += f"{message['content']} "
    told = re.findall(r"Order (\d+) arrives", said["assistant"])
    sentences = []
    for order in re.findall(r"order (\d+)", said["user"]):
        if order not in told:
            sentences.append(f"Order {order} arrives tomorrow.")
    text = " ".join(sentences) or f"I have heard {len(messages)} messages."
    for word in re.findall(r"\S+\s*", text):
        await asyncio.sleep(delay)
        yield word


if __name__ == "__main__":
    asyncio.run(main())
