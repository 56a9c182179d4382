"""What huggingface_hub of this environment lists of HF_ENDPOINT: 60 iterations of lab/run beside lab/other and team/run.

list_hub.py NAME-OF-THE-TOKEN
"""
import inspect
import sys

from huggingface_hub import HfApi
from huggingface_hub.utils import HfHubHTTPError

ITERATIONS = 60
api = HfApi()

names = [m.id for m in api.list_models()]
assert sorted(names) == ["lab/other", "lab/run", "team/run"], names
assert [m.id for m in api.list_models(author="team")] == ["team/run"]
assert sorted(m.id for m in api.list_models(search="RUN")) == ["lab/run", "team/run"]
assert [m.id for m in api.list_models(search="run", author="lab")] == ["lab/run"]
assert [m.id for m in api.list_models(limit=2)] == names[:2]
assert [d.id for d in api.list_datasets(author="lab")] == ["lab/tales"]
assert not list(api.list_datasets(search="nope"))

# More than one page of them, the newest first; each is a revision, and what its tag says.
commits = api.list_repo_commits("lab/run")
assert [c.title for c in commits] == [f"iter_{i:07}" for i in range(ITERATIONS, 0, -1)], commits
assert len({c.commit_id for c in commits}) == ITERATIONS and all(len(c.commit_id) == 40 for c in commits)
assert [c.title for c in api.list_repo_commits("lab/run", revision="iter_0000002", formatted=True)] == ["iter_0000002", "iter_0000001"]
refs = api.list_repo_refs("lab/run")
assert {t.name: t.target_commit for t in refs.tags} == {c.title: c.commit_id for c in commits}
assert refs.branches[0].target_commit == commits[0].commit_id
assert api.model_info("lab/run", revision="iter_0000007").sha == commits[ITERATIONS - 7].commit_id
assert api.model_info("lab/run", revision=commits[5].commit_id).sha == commits[5].commit_id
assert api.model_info("lab/run").author == "lab"
assert len(api.list_repo_commits("lab/tales", repo_type="dataset")) == 1

# Whether one may read: nothing is reported, or that there is no such repository. Nobody may write.
def refused(*names, **more):
    try:
        api.auth_check(*names, **more)
    except HfHubHTTPError as e:
        return type(e).__name__, e.response.status_code
    return None


if hasattr(api, "auth_check"):  # huggingface_hub 0.25
    assert refused("lab/run") is None and refused("lab/tales", repo_type="dataset") is None
    assert refused("lab/run__megatron.torch.tp1-pp1") is None
    for name, more in (("lab/none", {}), ("lab/tales", {}), ("lab/run", {"repo_type": "dataset"}), ("lab/run__none", {})):
        assert refused(name, **more) == ("RepositoryNotFoundError", 404), (name, refused(name, **more))
    assert refused("lab/run", token="hf_nobody_12345") == ("RepositoryNotFoundError", 401)
    if "write" in inspect.signature(api.auth_check).parameters:
        assert refused("lab/run", write=True) == ("HfHubHTTPError", 403)

who = api.whoami()
assert who["name"] == sys.argv[1] and who["auth"]["accessToken"]["role"] == "read", who
try:
    api.whoami(token="hf_nobody_12345")
except HfHubHTTPError as e:
    assert e.response.status_code == 401
except OSError as e:  # of requests, before huggingface_hub 0.25
    assert "401" in str(e) or "Invalid user token" in str(e), e
else:
    raise AssertionError("a token that is not known has a name")
