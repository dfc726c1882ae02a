import pytest
from tests.test_bad_urls import test_other_spellings_of_one_origin as original
@pytest.mark.parametrize("n", range(150))
async def test_it(sites, n):
    await original(sites)
