"""What the data API is held against: FastAPI and psycopg as everybody writes them, for one query of one table."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

QUERY = (
    "SELECT transaction_id, user_id, amount, merchant, status, timestamp FROM desk WHERE user_id = %s "
    "ORDER BY timestamp DESC, transaction_id LIMIT %s OFFSET %s"
)
pool = AsyncConnectionPool(os.environ["DESK_DSN"], kwargs={"row_factory": dict_row, "autocommit": True}, open=False)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None, None]:
    """The pool is there as long as the application."""
    await pool.open()
    yield
    await pool.close()


app = FastAPI(lifespan=lifespan)


@app.get("/transactions/user/{user_id}")
async def transactions_of_user(user_id: int, limit: int = 20, offset: int = 0) -> list[dict[str, Any]]:
    """The transactions of a user, newest first."""
    async with pool.connection() as connection:
        cursor = await connection.execute(QUERY, (user_id, limit, offset))
        return await cursor.fetchall()  # type: ignore[return-value]


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["DESK_PORT"]), log_level="warning", access_log=False)
