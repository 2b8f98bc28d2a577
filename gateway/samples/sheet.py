"""A page of a sample invoice being drawn from top to bottom, and how it writes dates and money."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

from convertq.gateway.samples.invoices import Invoice, Item
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas

MONTHS = (
    *("janeiro", "fevereiro", "março", "abril", "maio", "junho"),
    *("julho", "agosto", "setembro", "outubro", "novembro", "dezembro"),
)
Columns = list[tuple[str, str, float, bool]]  # heading, what it shows, x, aligned right


def money(amount: Decimal, thousands: str = ".", unit: str = "") -> str:
    whole, _, cents = f"{amount:,}".partition(".")
    return f"{whole.replace(',', thousands)},{cents}{unit}"


def day_first(day: date, sign: str = "/") -> str:
    return day.strftime(f"%d{sign}%m{sign}%Y")


def spelled(day: date) -> str:
    return f"{day.day} de {MONTHS[day.month - 1]} de {day.year}"


@dataclass
class Sheet:
    canvas: Canvas
    size: tuple[float, float] = A4
    y: float = 0
    margin: float = 50
    pages: int = 1
    columns: Columns = field(default_factory=list)

    def __post_init__(self) -> None:
        self.canvas.setPageSize(self.size)
        self.y = self.size[1] - self.margin

    def write(self, x: float, text: str, size: float = 10, bold: bool = False, right: bool = False) -> None:
        self.canvas.setFont("Helvetica-Bold" if bold else "Helvetica", size)
        (self.canvas.drawRightString if right else self.canvas.drawString)(x, self.y, text)

    def down(self, distance: float = 14) -> None:
        self.y -= distance

    def stack(self, x: float, *texts: str) -> None:
        for text in texts:
            self.write(x, text)
            self.down()

    def pair(self, x: float, label: str, x_value: float, value: str, right: bool = True) -> None:
        self.write(x, label)
        self.write(x_value, value, right=right)
        self.down()

    def headings(self) -> None:
        for heading, _, x, right in self.columns:
            self.write(x, heading, 9, bold=True, right=right)
        self.down(16)

    def break_page(self, repeat_headings: bool) -> None:
        self.y = self.margin / 2
        self.write(self.size[0] / 2, f"Página {self.pages}", 8)
        self.canvas.showPage()
        self.pages += 1
        self.y = self.size[1] - self.margin
        if repeat_headings:
            self.headings()

    def table(self, invoice: Invoice, columns: Columns, repeat_headings: bool = True, thousands: str = ".") -> None:
        self.columns = columns
        self.headings()
        for item in invoice.items:
            if self.y < 2 * self.margin:
                self.break_page(repeat_headings)
            for _, shows, x, right in columns:
                self.write(x, shown(item, shows, thousands), 9, right=right)
            self.down()
        self.down()

    def rates(self, invoice: Invoice, x: float, headings: tuple[str, str, str] = ("Taxa", "Base", "IVA")) -> None:
        for place, heading in zip((x, x + 120, x + 200), headings, strict=True):
            self.write(place, heading, 9, bold=True, right=place > x)
        self.down()
        for rate, base, vat in invoice.by_rate:
            self.write(x, f"{rate}%", 9)
            self.write(x + 120, money(base), 9, right=True)
            self.write(x + 200, money(vat), 9, right=True)
            self.down()
        self.down()


def shown(item: Item, shows: str, thousands: str) -> str:
    texts = {
        "code": item.code,
        "description": item.description,
        "quantity": f"{item.quantity:f}".replace(".", ","),
        "price": money(item.price, thousands),
        "rate": f"{item.rate}%",
        "amount": money(item.amount, thousands),
    }
    return texts[shows]
