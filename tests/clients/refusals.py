"""What a client must be refused."""


async def fails_with(status, awaitable):
    try:
        await awaitable
    except Exception as error:
        code = getattr(getattr(error, "response", None), "status_code", None)
        assert code == status, (status, repr(error))
        return
    raise AssertionError(f"not refused with {status}")
