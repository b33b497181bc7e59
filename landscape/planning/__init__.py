"""What a job would hold where, and how long it would take, before it is begun."""

from landscape.planning.ahead import look_ahead
from landscape.planning.job import plan_job
from landscape.planning.plan import Machine, Phase, Plan, plan, remedies

__all__ = ["Machine", "Phase", "Plan", "look_ahead", "plan", "plan_job", "remedies"]
