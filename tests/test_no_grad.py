"""装饰生成器与 async 函数的 no_grad；反向函数的检查"""

import asyncio
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

from gptcore import DtypeError, GraphError, Tensor, is_grad_enabled, no_grad


def test_generators_receive_values_and_errors() -> None:
    log: list[Any] = []

    @no_grad()
    def echo() -> Generator[Any, Any, str]:
        received = None
        try:
            while received != "stop":
                log.append(is_grad_enabled())
                try:
                    received = yield received
                except KeyError as error:
                    received = error
            return "end"
        finally:
            log.append(("closed", is_grad_enabled()))

    stream = echo()
    assert next(stream) is None
    assert stream.send(5) == 5
    assert is_grad_enabled()
    assert isinstance(stream.throw(KeyError("k")), KeyError)
    with pytest.raises(StopIteration) as stop:
        stream.send("stop")
    assert stop.value.value == "end"
    assert log == [False, False, False, ("closed", False)]
    other = echo()
    next(other)
    other.close()
    assert log[-1] == ("closed", False)
    third = echo()
    next(third)
    with pytest.raises(ZeroDivisionError):
        third.throw(ZeroDivisionError)
    assert is_grad_enabled()


def test_coroutines() -> None:
    @no_grad()
    async def inside() -> bool:
        await asyncio.sleep(0)
        return is_grad_enabled()

    async def outside() -> list[bool]:
        async def free() -> bool:
            await asyncio.sleep(0)
            return is_grad_enabled()

        return list(await asyncio.gather(inside(), free(), inside()))

    assert asyncio.run(outside()) == [False, True, False]
    assert is_grad_enabled()


def test_what_cannot_be_decorated() -> None:
    async def stream() -> Any:
        yield 1

    for bad in (stream, 5):
        with pytest.raises(DtypeError, match=r"no_grad：不能装饰.*with no_grad\(\)"):
            no_grad()(bad)


def test_parentheses() -> None:
    with pytest.raises(DtypeError, match=r"@no_grad\(\)"):
        no_grad(lambda: None)


def test_a_gradient_function_takes_no_arguments() -> None:
    x, p = Tensor([1.0]), Tensor([2.0])

    class Holder:
        def method(self) -> None: ...

    def defaults(scale: float = 1.0) -> None: ...

    with pytest.raises(
        DtypeError, match=r"attach：gradient_fn 不能带参数.*<lambda> 要 1 个.*p\.grad"
    ):
        p.attach(lambda dy: dy, [x])
    p.attach(Holder().method, [x]).backward()
    Tensor([2.0]).attach(defaults, [x]).backward()
    Tensor([2.0]).attach(dict, [x])  # 看不出参数的放行


@pytest.mark.parametrize("result", [(), (np.ones(1), np.ones(1)), np.ones(1)])
def test_the_number_of_gradients(result: Any) -> None:
    y = Tensor([1.0]).record((Tensor([1.0]),), lambda dy: result)
    with pytest.raises(GraphError, match=r"record：有 1 个父张量.*\(dx,\)"):
        y.backward()
