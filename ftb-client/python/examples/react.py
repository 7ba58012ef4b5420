"""Answers every fan failure, with asyncio: python react.py"""

import asyncio

import ftb


async def main() -> None:
    async with ftb.AsyncClient("react.py") as client:
        async for fault in await client.subscribe("event_name=FTB_IPMI_FANFAIL"):
            if isinstance(fault, ftb.Gap):
                continue
            tags = {"node": fault.text}
            id = await client.publish("my.site", "FAN_TICKET", tags=tags, response_to=fault)
            print(f"{fault.text}: ticket {id}")


asyncio.run(main())
