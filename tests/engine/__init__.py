"""Tests that need a real container engine."""
