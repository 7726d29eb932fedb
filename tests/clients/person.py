"""What somebody writes who has a person in the loop, with the field's public client; nothing in it knows
whose server it is. Arguments: the server's address, a graph's name."""

import asyncio
import sys

from langgraph_sdk import get_client, get_sync_client

from refusals import fails_with

URL, GRAPH = sys.argv[1], sys.argv[2]
ASK = {"script": {"n": [{"put": {"a": ["before"]}}, {"ask": {"approve": 12}}, {"put_results": "a"}]}}
TWO = {"script": {"n": [{"ask_all": ["first?", "second?"]}, {"put_results": "a"}]}}
PLAIN = {"script": {"n": [{"put": {"a": [1], "c": 2}}]}}
SLOW = {"script": {"n": [{"spin_ms": 60000}]}}


async def main():
    client = get_client(url=URL)
    found = await client.assistants.search(graph_id=GRAPH)
    assert [a["graph_id"] for a in found] == [GRAPH], found
    assistant = found[0]["assistant_id"]
    assert (await client.assistants.get(assistant))["name"] == GRAPH
    assert (await client.assistants.get_schemas(assistant))["input_schema"]["properties"]["a"]["type"] == "array"
    assert {n["id"] for n in (await client.assistants.get_graph(assistant))["nodes"]} >= {"__start__", "n", "__end__"}
    assert await client.assistants.count(graph_id=GRAPH) == 1
    mine = await client.assistants.create(GRAPH, name="mine", metadata={"team": "x"})
    assert [a["name"] for a in await client.assistants.search(metadata={"team": "x"})] == ["mine"]
    assert (await client.assistants.update(mine["assistant_id"], name="ours"))["name"] == "ours"
    await client.assistants.delete(mine["assistant_id"])

    # Threads.
    thread = await client.threads.create(metadata={"customer": "7"})
    tid = thread["thread_id"]
    assert thread["status"] == "idle" and thread["values"] is None
    named = await client.threads.create(thread_id="a/b c.d?", if_exists="do_nothing")
    again = await client.threads.create(thread_id="a/b c.d?", if_exists="do_nothing")
    assert named["thread_id"] == again["thread_id"] == "a/b c.d?"
    await fails_with(409, client.threads.create(thread_id="a/b c.d?"))
    await fails_with(404, client.threads.get("nobody"))
    assert (await client.threads.update(tid, metadata={"more": True}))["metadata"] == {"customer": "7", "more": True}
    state = await client.threads.get_state(tid)
    assert state["values"] == {} and state["next"] == []

    # The main road: start, pause, look, answer.
    paused = await client.runs.wait(tid, GRAPH, input=ASK)
    [question] = paused["__interrupt__"]
    assert question["value"] == {"approve": 12}, paused
    thread = await client.threads.get(tid)
    assert thread["status"] == "interrupted"
    [[pending]] = thread["interrupts"].values()
    assert pending["id"] == question["id"]
    state = await client.threads.get_state(tid)
    assert state["next"] == ["n"] and state["tasks"][0]["interrupts"][0]["value"] == {"approve": 12}
    assert state["interrupts"][0]["id"] == question["id"]
    await fails_with(409, client.runs.create(tid, GRAPH, input=PLAIN))
    done = await client.runs.wait(tid, GRAPH, command={"resume": {"approved": True}})
    assert done["a"] == ["before", {"approved": True}] or done["a"][-1] == {"approved": True}, done
    assert (await client.threads.get(tid))["status"] == "idle"
    runs = await client.runs.list(tid)
    assert [run["status"] for run in runs] == ["success", "success"] and runs[0]["assistant_id"] == assistant
    assert (await client.runs.get(tid, runs[0]["run_id"]))["thread_id"] == tid
    await fails_with(409, client.runs.wait(tid, GRAPH, command={"resume": "late"}))

    # By map.
    thread2 = await client.threads.create()
    paused = await client.runs.wait(thread2["thread_id"], assistant, input=TWO)
    assert len(paused["__interrupt__"]) == 2
    answers = {q["id"]: q["value"] + "!" for q in paused["__interrupt__"]}
    await fails_with(409, client.runs.wait(thread2["thread_id"], assistant, command={"resume": "one for two"}))
    done = await client.runs.wait(thread2["thread_id"], assistant, command={"resume": answers})
    assert done["a"] == [["first?!", "second?!"]], done

    # Streams.
    thread3 = (await client.threads.create())["thread_id"]
    parts = [part async for part in client.runs.stream(thread3, GRAPH, input=ASK, stream_mode=["values", "updates"])]
    names = [part.event for part in parts]
    assert names[0] == "metadata" and names[-1] == "end", names
    assert "values" in names and parts[-1].data["status"] == "success"
    interrupts = [p.data["__interrupt__"] for p in parts if p.event == "updates" and "__interrupt__" in p.data]
    assert len(interrupts) == 1 and interrupts[0][0]["value"] == {"approve": 12}, parts
    parts = [part async for part in client.runs.stream(thread3, GRAPH, command={"resume": 1}, stream_mode="updates")]
    updates = [p.data for p in parts if p.event == "updates"]
    assert [list(u) for u in updates] == [["n"]], parts
    run_id = parts[0].data["run_id"]
    replay = [p async for p in client.runs.join_stream(thread3, run_id, stream_mode=["updates"])]
    assert [(p.event, p.data) for p in replay] == [(p.event, p.data) for p in parts], (replay, parts)

    # Gates, and going on without input.
    thread4 = (await client.threads.create())["thread_id"]
    stopped = await client.runs.wait(thread4, GRAPH, input=PLAIN, interrupt_before=["n"])
    assert (await client.threads.get_state(thread4))["next"] == ["n"], stopped
    done = await client.runs.wait(thread4, GRAPH, input=None)
    assert done["c"] == 2 and "__interrupt__" not in done

    # In the background; join; history; update.
    run = await client.runs.create(thread4, GRAPH, input=PLAIN)
    values = await client.runs.join(thread4, run["run_id"])
    assert values["c"] == 4, values
    history = await client.threads.get_history(thread4, limit=20)
    assert history[0]["values"] == values and history[0]["next"] == []
    older = await client.threads.get_history(thread4, limit=20, before=history[0]["checkpoint"])
    assert [h["checkpoint"] for h in older] == [h["checkpoint"] for h in history[1:]]
    one = await client.threads.get_state(thread4, checkpoint=history[-1]["checkpoint"])
    assert one["checkpoint"]["checkpoint_id"] == history[-1]["checkpoint"]["checkpoint_id"]
    updated = await client.threads.update_state(thread4, {"c": 10})
    assert updated["checkpoint"]["checkpoint_id"]
    assert (await client.threads.get_state(thread4))["values"]["c"] == 14
    found = await client.threads.search(metadata={"customer": "7"})
    assert [t["thread_id"] for t in found] == [tid]
    assert await client.threads.count(status="idle") >= 3
    assert tid in [t["thread_id"] for t in await client.threads.search(status="idle", limit=100)]

    # Failure.
    bad = {"script": {"n": [{"fail": "on purpose"}]}}
    thread5 = (await client.threads.create())["thread_id"]
    failed = await client.runs.wait(thread5, GRAPH, input=bad, raise_error=False)
    assert failed["__error__"]["error"] == "node-failed", failed
    assert (await client.threads.get(thread5))["status"] == "error"
    events = [p.event async for p in client.runs.stream(thread5, GRAPH, input=bad)]
    assert events[-2:] == ["error", "end"], events

    # Double texting: what waits gives way, or waits.
    thread6 = (await client.threads.create())["thread_id"]
    await client.runs.wait(thread6, GRAPH, input=ASK)
    behind = await client.runs.create(thread6, GRAPH, input=PLAIN, multitask_strategy="enqueue")
    assert (await client.runs.get(thread6, behind["run_id"]))["status"] == "pending"
    await client.runs.wait(thread6, GRAPH, command={"resume": "yes"})
    assert (await client.runs.join(thread6, behind["run_id"]))["c"] == 2
    await client.runs.wait(thread6, GRAPH, input=ASK)
    done = await client.runs.wait(thread6, GRAPH, input=PLAIN, multitask_strategy="interrupt")
    assert "__interrupt__" not in done and done["c"] == 4, done

    # Cancel, and delete.
    waiting = await client.runs.create(thread6, GRAPH, input=ASK)
    await client.runs.join(thread6, waiting["run_id"])
    await client.runs.cancel(thread6, waiting["run_id"], wait=True)
    assert (await client.threads.get(thread6))["status"] == "idle"
    await fails_with(409, client.runs.cancel(thread6, waiting["run_id"]))
    await client.runs.delete(thread6, waiting["run_id"])
    await fails_with(404, client.runs.get(thread6, waiting["run_id"]))
    await client.threads.delete(thread6)
    await fails_with(404, client.threads.get(thread6))

    # Without a thread of one's own.
    assert (await client.runs.wait(None, GRAPH, input=PLAIN))["c"] == 2


def sync():
    client = get_sync_client(url=URL)
    thread = client.threads.create()
    paused = client.runs.wait(thread["thread_id"], GRAPH, input=ASK)
    assert paused["__interrupt__"][0]["value"] == {"approve": 12}
    parts = list(client.runs.stream(thread["thread_id"], GRAPH, command={"resume": "no"}, stream_mode="values"))
    assert parts[-2].event == "values" and parts[-2].data["a"][-1] in ("no", ["no"]), parts
    assert client.threads.get_state(thread["thread_id"])["next"] == []
    client.threads.delete(thread["thread_id"])


asyncio.run(main())
sync()
print("ok")
